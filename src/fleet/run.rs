//! The tasks behind the fleets, and what keeps them alive.

use super::discovery::{self, SystemResolver};
use super::fleets::Fleets;
use super::health::{self, Prober};
use super::model::ModelFleet;
use super::scrape::Scraper;
use super::worker::Worker;
use super::{poll, table};
use crate::config::WorkerHost;
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Before a task that panicked is started again.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Polls, probes, resolves and publishes until `shutdown`. Needs a tokio runtime with time and I/O.
pub async fn run(fleets: Arc<Fleets>, shutdown: impl Future<Output = ()>) {
    let mut tasks = JoinSet::new();
    let scraper = Arc::new(Scraper::new());
    let prober = Prober::new();
    for model in fleets.models() {
        let publisher = Arc::clone(model);
        let name = format!("table of {}", model.config.name);
        tasks.spawn(supervised(name, move || table::watch(Arc::clone(&publisher))));
        for worker in model.workers() {
            start(&mut tasks, Pair { model, worker }, &scraper, &prober, fleets.dns_interval);
        }
    }
    shutdown.await;
    tasks.shutdown().await;
}

#[derive(Clone, Copy)]
struct Pair<'a> {
    model: &'a Arc<ModelFleet>,
    worker: &'a Arc<Worker>,
}

impl Pair<'_> {
    /// A future per start of a task, made from handles of its own.
    fn task<F, T>(self, start: F) -> impl Fn() -> T + Send + 'static
    where
        F: Fn(Arc<ModelFleet>, Arc<Worker>) -> T + Send + 'static,
    {
        let (model, worker) = (Arc::clone(self.model), Arc::clone(self.worker));
        move || start(Arc::clone(&model), Arc::clone(&worker))
    }
}

fn start(
    tasks: &mut JoinSet<()>,
    pair: Pair<'_>,
    scraper: &Arc<Scraper>,
    prober: &Arc<Prober>,
    dns_interval: Duration,
) {
    let id = &pair.worker.id;
    let scraper = Arc::clone(scraper);
    let polls = pair.task(move |model, worker| poll::watch(model, worker, Arc::clone(&scraper)));
    tasks.spawn(supervised(format!("reports of {id}"), polls));
    if pair.model.config.health.enabled {
        let prober = Arc::clone(prober);
        let probes =
            pair.task(move |model, worker| health::watch(model, worker, Arc::clone(&prober)));
        tasks.spawn(supervised(format!("probes of {id}"), probes));
    }
    if let WorkerHost::Name { host, port } = &pair.worker.config.url.host {
        let (host, port) = (host.clone(), *port);
        let names = pair.task(move |model, worker| {
            let resolver = SystemResolver { host: host.clone(), port };
            discovery::watch(model, worker, resolver, dns_interval)
        });
        tasks.spawn(supervised(format!("name of {id}"), names));
    }
}

/// A panic in one task is that task's alone, and not its end.
async fn supervised<F, T>(name: String, task: F)
where
    F: Fn() -> T,
    T: Future<Output = ()>,
{
    while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
        log::error!("{name}: panicked, starting it again");
        sleep(RESTART_DELAY).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_task_that_panics_is_started_again() {
        let starts = AtomicU32::new(0);
        supervised("test".to_owned(), || async {
            assert!(0 < starts.fetch_add(1, Ordering::Relaxed), "the first start fails");
        })
        .await;
        assert_eq!(starts.load(Ordering::Relaxed), 2);
    }
}
