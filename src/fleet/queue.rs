//! Requests of a model that wait until a worker may take one, in turn between clients.
//!
//! One of those who wait is *called* at a time. It asks the policy again whenever something may have
//! changed, and when it leaves, with a worker or without, the next one is called: of the client whose
//! turn it is, the request that waits longest. So whoever sends a thousand requests does not keep
//! somebody with one waiting, and no more than one request asks at a time.
//!
//! A model's queue outlives its configurations. Nothing is held across an await: dropping a [`Place`]
//! is how a request leaves, whatever the reason.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Whose request it is: an address, or whoever comes over a unix socket.
pub type Client = Option<IpAddr>;

/// How much one more interval moves the mean of those before.
const NEWEST: f64 = 0.2;
/// A wait that is told to a client is no shorter and no longer.
pub(super) const SHORTEST: Duration = Duration::from_secs(1);
pub(super) const LONGEST: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub struct Queue {
    line: Mutex<Line>,
    waiting: AtomicUsize,
    /// Something changed since the called one asked last.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Line {
    /// Those not called yet; no client without any.
    clients: HashMap<Client, Waiting>,
    /// Clients in the order of their turns.
    turns: BTreeMap<u64, Client>,
    /// Numbers given out so far, to requests and to turns.
    numbers: u64,
    is_anybody_called: bool,
    /// When one last left with a worker, or the line began; the mean time until the next, seconds.
    pace_from: Option<Instant>,
    interval: Option<f64>,
}

/// One client's requests that wait. Numbered, so that whoever is in the middle of a long line leaves it
/// without anybody looking through it.
#[derive(Debug)]
struct Waiting {
    turn: u64,
    requests: BTreeMap<u64, Arc<Waiter>>,
}

#[derive(Debug, Default)]
struct Waiter {
    called: Notify,
}

impl Queue {
    /// Does nobody wait?
    pub fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// A worker may take a request that could not before.
    pub fn changed(&self) {
        // What became free is seen by who joins now, or who joins is seen here.
        fence(Ordering::SeqCst);
        if !self.is_empty() {
            self.changed.notify_one();
        }
    }

    /// The last place; `None` if `most` requests wait already.
    pub fn join(self: &Arc<Self>, client: Client, most: usize) -> Option<Place> {
        let mut line = self.line.lock();
        if most <= self.waiting() {
            return None;
        }
        if self.waiting.fetch_add(1, Ordering::AcqRel) == 0 {
            line.pace_from = Some(Instant::now());
        }
        let waiter = Arc::<Waiter>::default();
        let number = line.join(client, Arc::clone(&waiter));
        line.call_next();
        fence(Ordering::SeqCst);
        Some(Place { queue: Arc::clone(self), client, number, waiter })
    }

    /// How long it takes until those who wait now are taken, at the pace of the last ones; `unknown`
    /// if none ever was.
    pub fn expected_wait(&self, unknown: Duration) -> Duration {
        let line = self.line.lock();
        let expected = line.interval.zip(line.pace_from).map_or(unknown, |(interval, from)| {
            // A stop since then is the newest that is known of the pace.
            let interval = interval.max(from.elapsed().as_secs_f64());
            let waiting = f64::from(u32::try_from(self.waiting()).unwrap_or(u32::MAX).max(1));
            Duration::try_from_secs_f64(interval * waiting).unwrap_or(LONGEST)
        });
        expected.clamp(SHORTEST, LONGEST)
    }
}

impl Line {
    /// The request's number.
    fn join(&mut self, client: Client, waiter: Arc<Waiter>) -> u64 {
        let number = self.next_number();
        let turns = &mut self.turns;
        // A new client's turn comes last, and there is no later number yet.
        let waiting = self.clients.entry(client).or_insert_with(|| {
            turns.insert(number, client);
            Waiting { turn: number, requests: BTreeMap::new() }
        });
        waiting.requests.insert(number, waiter);
        number
    }

    fn call_next(&mut self) {
        if self.is_anybody_called {
            return;
        }
        let Some((_, client)) = self.turns.pop_first() else { return };
        let last = self.next_number();
        let Some(waiting) = self.clients.get_mut(&client) else { return };
        let next = waiting.requests.pop_first();
        if waiting.requests.is_empty() {
            self.clients.remove(&client);
        } else {
            waiting.turn = last;
            self.turns.insert(last, client);
        }
        if let Some((_, next)) = next {
            self.is_anybody_called = true;
            next.called.notify_one();
        }
    }

    /// True: it was in the line, so it was not called.
    fn leave(&mut self, client: Client, number: u64) -> bool {
        let Some(waiting) = self.clients.get_mut(&client) else { return false };
        let was_there = waiting.requests.remove(&number).is_some();
        if waiting.requests.is_empty() {
            self.turns.remove(&waiting.turn);
            self.clients.remove(&client);
        }
        was_there
    }

    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn was_taken(&mut self) {
        let now = Instant::now();
        if let Some(before) = self.pace_from.replace(now) {
            let newest = now.duration_since(before).as_secs_f64();
            let mean = self.interval.unwrap_or(newest);
            self.interval = Some(mean + NEWEST * (newest - mean));
        }
    }
}

/// A request's place in a queue.
#[derive(Debug)]
pub struct Place {
    queue: Arc<Queue>,
    client: Client,
    number: u64,
    waiter: Arc<Waiter>,
}

impl Place {
    /// Waits for its turn; at once, if it has come.
    pub async fn called(&self) {
        self.waiter.called.notified().await;
        // Whoever was called stays called.
        self.waiter.called.notify_one();
    }

    /// Its turn has come: waits until it is worth asking again.
    pub async fn changed(&self) {
        self.queue.changed.notified().await;
    }

    /// A worker takes the request.
    pub fn taken(self) {
        self.queue.line.lock().was_taken();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut line = self.queue.line.lock();
        if !line.leave(self.client, self.number) {
            line.is_anybody_called = false;
            line.call_next();
        }
        self.queue.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
