//! The tasks behind the fleets, and what keeps them alive.
//!
//! A worker's tasks outlive a configuration that changes nothing for them, so that what they have
//! found out about it stays known and a reload asks no worker anything.

use super::discovery::SystemResolver;
use super::fleets::Fleets;
use super::health::{self, Prober};
use super::model::ModelFleet;
use super::scrape::Scraper;
use super::worker::Worker;
use super::{discovery, poll, table};
use crate::config::{self, WorkerHost};
use futures_util::FutureExt;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Before a task that panicked is started again.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Polls, probes, resolves and publishes for the fleets in force until `shutdown`. Needs a tokio
/// runtime with time and I/O.
pub async fn run(mut fleets: watch::Receiver<Arc<Fleets>>, shutdown: impl Future<Output = ()>) {
    let mut tasks = Tasks::new();
    let serve = async {
        loop {
            let now = Arc::clone(&fleets.borrow_and_update());
            tasks.serve(&now);
            drop(now);
            if fleets.changed().await.is_err() {
                // Nobody can change them any more; those in force are served on.
                return std::future::pending().await;
            }
        }
    };
    tokio::select! {
        () = serve => {}
        () = shutdown => {}
    }
}

/// A task that ends with its handle.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn start<F, T>(name: String, task: F) -> Task
where
    F: Fn() -> T + Send + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    Task(tokio::spawn(supervised(name, task)))
}

/// What a worker's tasks go by.
#[derive(Clone, Debug, PartialEq)]
struct Settings {
    worker: config::Worker,
    load_reports: config::LoadReports,
    health: config::Health,
    dns_interval: Duration,
}

struct Watched {
    settings: Settings,
    _tasks: Vec<Task>,
}

struct Tasks {
    scraper: Arc<Scraper>,
    prober: Arc<Prober>,
    tables: Vec<Task>,
    /// By the number of the worker.
    workers: HashMap<u64, Watched>,
}

impl Tasks {
    fn new() -> Self {
        Self {
            scraper: Arc::new(Scraper::new()),
            prober: Prober::new(),
            tables: Vec::new(),
            workers: HashMap::new(),
        }
    }

    /// Starts what these fleets need and ends what they do not.
    fn serve(&mut self, fleets: &Fleets) {
        self.tables = fleets.models().iter().map(publish).collect();
        let mut before = std::mem::take(&mut self.workers);
        for model in fleets.models() {
            for worker in model.workers() {
                let settings = Settings {
                    worker: worker.config.clone(),
                    load_reports: model.config.load_reports.clone(),
                    health: model.config.health.clone(),
                    dns_interval: fleets.dns_interval,
                };
                let number = worker.lasting.number;
                let known = before.remove(&number).filter(|known| known.settings == settings);
                let watched = known.unwrap_or_else(|| self.watch(worker, settings));
                self.workers.insert(number, watched);
            }
        }
    }

    fn watch(&self, worker: &Arc<Worker>, settings: Settings) -> Watched {
        let mut tasks = vec![self.polls(worker, &settings)];
        if settings.health.enabled {
            tasks.push(self.probes(worker, &settings));
        }
        if let WorkerHost::Name { host, port } = &worker.config.url.host {
            tasks.push(resolve(worker, host, *port, settings.dns_interval));
        }
        Watched { settings, _tasks: tasks }
    }

    fn polls(&self, worker: &Arc<Worker>, settings: &Settings) -> Task {
        let (worker, scraper) = (Arc::clone(worker), Arc::clone(&self.scraper));
        let rules = settings.load_reports.clone();
        start(format!("reports of {}", worker.id), move || {
            poll::watch(Arc::clone(&worker), rules.clone(), Arc::clone(&scraper))
        })
    }

    fn probes(&self, worker: &Arc<Worker>, settings: &Settings) -> Task {
        let (worker, prober) = (Arc::clone(worker), Arc::clone(&self.prober));
        let rules = settings.health.clone();
        start(format!("probes of {}", worker.id), move || {
            health::watch(Arc::clone(&worker), rules.clone(), Arc::clone(&prober))
        })
    }
}

fn publish(model: &Arc<ModelFleet>) -> Task {
    let model = Arc::clone(model);
    start(format!("table of {}", model.config.name), move || table::watch(Arc::clone(&model)))
}

fn resolve(worker: &Arc<Worker>, host: &str, port: u16, interval: Duration) -> Task {
    let (worker, host) = (Arc::clone(worker), host.to_owned());
    start(format!("name of {}", worker.id), move || {
        let resolver = SystemResolver { host: host.clone(), port };
        discovery::watch(Arc::clone(&worker), resolver, interval)
    })
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
