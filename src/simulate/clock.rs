//! Simulated time that runs faster than the wall's.

use std::time::Duration;
use tokio::time::Instant;

/// As good as never.
const FAR: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Maps wall time to simulated time; all parts of one simulation share a copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Instant,
    speed: f64,
}

impl Clock {
    /// Starts now; `speed` simulated seconds pass per wall second, a thousandth to a million.
    pub fn start(speed: f64) -> Self {
        let speed = if speed.is_nan() { 1.0 } else { speed };
        Self { epoch: Instant::now(), speed: speed.clamp(1e-3, 1e6) }
    }

    /// Simulated time since the start.
    pub fn now(&self) -> Duration {
        self.simulated(self.epoch.elapsed())
    }

    /// What a stretch of wall time is in simulated time.
    pub fn simulated(&self, wall: Duration) -> Duration {
        wall.mul_f64(self.speed)
    }

    /// Waits until a simulated time; returns at once if it is past.
    pub async fn sleep_until(&self, simulated: Duration) {
        let wall = Duration::try_from_secs_f64(simulated.as_secs_f64() / self.speed);
        tokio::time::sleep_until(self.epoch + wall.unwrap_or(FAR).min(FAR)).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn simulated_time_runs_at_its_speed_and_waiting_ends_on_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let clock = Clock::start(1_000.0);
            clock.sleep_until(Duration::from_secs(5)).await;
            assert!(Duration::from_secs(5) <= clock.now());
            assert_eq!(clock.simulated(Duration::from_millis(3)), Duration::from_secs(3));
        });
    }

    #[test]
    fn a_time_beyond_all_clocks_is_waited_for_and_a_senseless_speed_taken_as_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for speed in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
                let clock = Clock::start(speed);
                let mut wait = std::pin::pin!(clock.sleep_until(Duration::MAX));
                let polled = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(wait.as_mut().poll(context))
                });
                assert!(polled.await.is_pending());
            }
        });
    }
}
