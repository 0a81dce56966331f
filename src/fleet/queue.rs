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
use std::collections::{HashMap, VecDeque};
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
    clients: HashMap<Client, VecDeque<Arc<Waiter>>>,
    /// Clients in the order of their turns.
    turns: VecDeque<Client>,
    is_anybody_called: bool,
    /// When one last left with a worker, or the line began; the mean time until the next, seconds.
    pace_from: Option<Instant>,
    interval: Option<f64>,
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
        let of_client = line.clients.entry(client).or_default();
        of_client.push_back(Arc::clone(&waiter));
        if of_client.len() == 1 {
            line.turns.push_back(client);
        }
        line.call_next();
        fence(Ordering::SeqCst);
        Some(Place { queue: Arc::clone(self), client, waiter })
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
    fn call_next(&mut self) {
        if self.is_anybody_called {
            return;
        }
        let Some(client) = self.turns.pop_front() else { return };
        let Some(of_client) = self.clients.get_mut(&client) else { return };
        let next = of_client.pop_front();
        if of_client.is_empty() {
            self.clients.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        if let Some(next) = next {
            self.is_anybody_called = true;
            next.called.notify_one();
        }
    }

    /// True: it was in the line, so it was not called.
    fn leave(&mut self, client: Client, waiter: &Arc<Waiter>) -> bool {
        let Some(of_client) = self.clients.get_mut(&client) else { return false };
        let before = of_client.len();
        of_client.retain(|other| !Arc::ptr_eq(other, waiter));
        let was_there = of_client.len() < before;
        if of_client.is_empty() {
            self.clients.remove(&client);
            self.turns.retain(|other| *other != client);
        }
        was_there
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
    waiter: Arc<Waiter>,
}

impl Place {
    /// Waits for its turn. Called once.
    pub async fn called(&self) {
        self.waiter.called.notified().await;
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
        if !line.leave(self.client, &self.waiter) {
            line.is_anybody_called = false;
            line.call_next();
        }
        self.queue.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
