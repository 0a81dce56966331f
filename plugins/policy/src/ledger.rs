//! What this edge has sent to one worker and not yet seen a first byte of.
//!
//! A first in, first out line: the engine is taken to prefill in the order of dispatch, so the first
//! byte of one request proves that everything sent before it is prefilled too. Writers hold a short
//! lock; readers use atomics only, and all that a decision reads lies on one cache line of
//! [`crate::fleet::Live`]. Numbers read one after the other may stem from two neighbouring events;
//! every formula here saturates, so that such a pair is merely a moment old.
//!
//! A [`Ticket`] that is dropped without [`Ledger::finish`] or [`Ledger::cancel`] stays outstanding
//! until a later request's first byte clears it: giving it back is the caller's duty.

mod line;
mod reported;

pub use reported::ReportedWork;

use crate::fleet::Millis;
use line::{Entry, Line, SPEED_LASTS};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Tokens that count: no engine computes more in a year. What is above counts as this, so that no sum
/// or product of a decision overflows and every number of tokens is a floating point one.
pub(crate) const MOST_TOKENS: u64 = 1 << 40;

/// Requests and their uncached tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outstanding {
    /// Uncached prompt tokens, at most 2^40.
    pub uncached_tokens: u64,
    /// Requests.
    pub requests: u64,
}

/// Does the answer's first byte come when prefill is done, or with the whole answer?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streaming {
    /// The first chunk with content ends prefill.
    Streamed,
    /// Nothing comes before the end of the answer.
    Unstreamed,
}

/// One dispatched request; given back by [`Ledger::finish`] or [`Ledger::cancel`] of the ledger it
/// came from.
#[derive(Debug)]
#[must_use = "a dispatch stays outstanding until its ticket is given back"]
pub struct Ticket {
    entry: Entry,
}

/// The line at the moment a poll is sent, see [`Ledger::mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Everything dispatched from here on was sent after the poll.
    sequence: u64,
    /// What was outstanding: `own_then` of the report this poll brings.
    pub outstanding: Outstanding,
    /// Requests in flight: its `own_in_flight`.
    pub in_flight: u64,
}

/// A ledger as a scenario describes it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    pub(crate) outstanding: Outstanding,
    pub(crate) since_report: Outstanding,
    pub(crate) head_tokens: u64,
    pub(crate) head_since: Millis,
    pub(crate) unstreamed: u64,
}

/// See the module. The fields down to `unstreamed` are what a decision reads.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Ledger {
    uncached_tokens: AtomicU64,
    requests: AtomicU64,
    since_tokens: AtomicU64,
    since_requests: AtomicU64,
    head_tokens: AtomicU64,
    /// The later of the head's dispatch and the last first byte, [`Millis`].
    head_since: AtomicU64,
    unstreamed: AtomicU64,
    in_flight: AtomicU64,
    events: AtomicU64,
    /// Tokens per second; 0 = not measured.
    speed: AtomicU64,
    /// When it was, [`Millis`].
    speed_at: AtomicU64,
    /// The same by whole answers, at least.
    proof: AtomicU64,
    /// Boxed: what the lock guards keeps off the line that decisions read.
    line: Box<Mutex<Line>>,
}

impl Ledger {
    /// Books a request that is being sent to the worker.
    pub fn dispatch(&self, uncached_tokens: u64, streaming: Streaming, now: Millis) -> Ticket {
        let mut line = self.line.lock();
        let sequence = line.next;
        line.next += 1;
        let entry = Entry { sequence, uncached_tokens, dispatched: now, streaming };
        line.push(entry);
        self.in_flight.fetch_add(1, Relaxed);
        self.events.fetch_add(1, Relaxed);
        self.publish(&line);
        Ticket { entry }
    }

    /// The first chunk with content came: this request and all sent before it are prefilled.
    ///
    /// That of an unstreamed answer that was expected long ago says nothing more.
    pub fn first_byte(&self, ticket: &Ticket, now: Millis) {
        let mut line = self.line.lock();
        if ticket.entry.is_unstreamed() && line.position(ticket.entry.sequence).is_none() {
            return;
        }
        if let Some(measured) = line.measure(ticket.entry.sequence, now) {
            // The number first: who reads a moment too early takes a new one for an old one's.
            self.speed.store(measured.unwrap_or(0), Relaxed);
            self.speed_at.store(now.0, Relaxed);
        }
        line.clear_through(ticket.entry.sequence);
        line.last_first_byte = line.last_first_byte.max(now);
        self.publish(&line);
    }

    /// The answer is complete. Clears like a first byte if none was seen.
    pub fn finish(&self, ticket: Ticket, now: Millis) {
        let mut line = self.line.lock();
        if let Some(proof) = line.prove(&ticket.entry, now) {
            self.proof.store(proof, Relaxed);
        }
        if line.position(ticket.entry.sequence).is_some() {
            line.clear_through(ticket.entry.sequence);
            line.last_first_byte = line.last_first_byte.max(now);
        }
        self.end(&line);
    }

    /// Takes unstreamed requests at the head of the line as prefilled once `speed`, tokens per second,
    /// would have done it. Their first byte comes with the whole answer; without this, all that
    /// decodes unseen would stand before every later request.
    pub fn expect(&self, speed: u64, now: Millis) {
        if self.unstreamed.load(Relaxed) == 0 {
            return;
        }
        let mut line = self.line.lock();
        line.expect(speed, now);
        self.publish(&line);
    }

    /// The worker does not compute this request, or nobody waits for it any more: it alone is taken
    /// back, it proves nothing about those before it.
    pub fn cancel(&self, ticket: Ticket) {
        let mut line = self.line.lock();
        line.remove(ticket.entry.sequence);
        self.end(&line);
    }

    /// To be taken when a poll is sent.
    pub fn mark(&self) -> Mark {
        let line = self.line.lock();
        Mark {
            sequence: line.next,
            outstanding: line.all.clipped(),
            in_flight: self.in_flight.load(Relaxed),
        }
    }

    /// The report of the poll that was sent at `mark` is what decisions read from now on.
    pub fn report_published(&self, mark: &Mark) {
        let mut line = self.line.lock();
        line.start_report(mark.sequence);
        self.publish(&line);
    }

    /// Sent and without a first byte.
    pub fn outstanding(&self) -> Outstanding {
        Outstanding {
            uncached_tokens: self.uncached_tokens.load(Relaxed),
            requests: self.requests.load(Relaxed),
        }
    }

    /// The part of it that was sent after the poll of the last published report.
    pub fn since_report(&self) -> Outstanding {
        Outstanding {
            uncached_tokens: self.since_tokens.load(Relaxed),
            requests: self.since_requests.load(Relaxed),
        }
    }

    /// Requests dispatched and neither finished nor cancelled, with or without a first byte.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    /// Dispatches and ends so far; a report that stays the same while this moves is frozen.
    pub fn events(&self) -> u64 {
        self.events.load(Relaxed)
    }

    /// Prefill tokens per second by own first bytes; `None` until there are enough of them, and five
    /// minutes after the last of them.
    ///
    /// Decayed tokens over decayed milliseconds of streamed requests at the head of the line, each
    /// from the later of its dispatch and the worker's previous first byte. A ratio of sums, because
    /// prompts prefilled in one batch answer at once and only together took their time.
    pub fn measured_speed(&self, now: Millis) -> Option<u64> {
        let age = now.0.saturating_sub(self.speed_at.load(Relaxed));
        Some(self.speed.load(Relaxed)).filter(|&speed| 0 < speed && age <= SPEED_LASTS)
    }

    /// What whole answers prove: the worker is at least this fast. The most that one has proven of
    /// late, its tokens over all the time it took; `None` until there are enough of them.
    pub fn proven_speed(&self) -> Option<u64> {
        Some(self.proof.load(Relaxed)).filter(|&speed| 0 < speed)
    }

    /// `L`, uncached tokens ahead of a new request: section 10 of the routing rules. At most 2^41.
    ///
    /// `speed` in tokens per second (0 = unknown: the head of the line has made no progress),
    /// `reported` of a fresh report, `mean_uncached_tokens` what a request is worth where only
    /// requests are known.
    #[inline]
    pub fn line(
        &self,
        now: Millis,
        speed: u32,
        reported: Option<&ReportedWork>,
        mean_uncached_tokens: u64,
    ) -> u64 {
        let own = self.uncached_tokens.load(Relaxed).saturating_sub(self.head_progress(now, speed));
        let Some(reported) = reported else { return own };
        let line = own + reported.foreign(mean_uncached_tokens);
        if self.unstreamed.load(Relaxed) == 0 {
            return line;
        }
        let Some(waiting) = reported.waiting() else { return line };
        let since = self.since_tokens.load(Relaxed);
        line.min(waiting + since + mean_uncached_tokens.min(MOST_TOKENS))
    }

    /// Bytes from the start that a decision reads.
    #[cfg(test)]
    pub(crate) const READ_BYTES: usize =
        std::mem::offset_of!(Self, unstreamed) + size_of::<AtomicU64>();

    /// A ledger that stands as a scenario describes it, without the requests behind it.
    pub(crate) fn standing(standing: Standing) -> Self {
        Self {
            uncached_tokens: standing.outstanding.uncached_tokens.min(MOST_TOKENS).into(),
            requests: standing.outstanding.requests.into(),
            since_tokens: standing.since_report.uncached_tokens.min(MOST_TOKENS).into(),
            since_requests: standing.since_report.requests.into(),
            head_tokens: standing.head_tokens.into(),
            head_since: standing.head_since.0.into(),
            unstreamed: standing.unstreamed.into(),
            ..Self::default()
        }
    }

    /// Tokens; nothing without a head or a speed. No branches for them, since a decision asks this
    /// of every worker, and 32 bits of each factor, so that the product fits: no head waits 49 days.
    #[inline]
    fn head_progress(&self, now: Millis, speed: u32) -> u64 {
        let elapsed_ms = now.0.saturating_sub(self.head_since.load(Relaxed)) as u32;
        (u64::from(elapsed_ms) * u64::from(speed) / 1000).min(self.head_tokens.load(Relaxed))
    }

    fn end(&self, line: &Line) {
        self.in_flight.fetch_sub(1, Relaxed);
        self.events.fetch_add(1, Relaxed);
        self.publish(line);
    }

    /// Called with the lock held, so that stores of two events do not mix.
    fn publish(&self, line: &Line) {
        let (all, since) = (line.all.clipped(), line.since.clipped());
        self.uncached_tokens.store(all.uncached_tokens, Relaxed);
        self.requests.store(all.requests, Relaxed);
        self.since_tokens.store(since.uncached_tokens, Relaxed);
        self.since_requests.store(since.requests, Relaxed);
        self.unstreamed.store(line.unstreamed, Relaxed);
        let (tokens, since) = line.head();
        self.head_tokens.store(tokens, Relaxed);
        self.head_since.store(since.0, Relaxed);
    }
}

#[cfg(test)]
mod tests;
