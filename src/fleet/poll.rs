//! Asks one worker for its load, again and again, and books what comes.

use super::clock::{jittered, on_a_beat};
use super::lasting::Lasting;
use super::reading::{Engine, Sent};
use super::scrape::{PollOutcome, ReportSource, Scraper, Target};
use super::worker::{Worker, WorkerAddress};
use crate::config::{LoadReports, ReportChoice};
use crate::limited::Changes;
use crate::metrics::{PollResult, ReportState};
use std::sync::Arc;
use tokio::time::{Instant, sleep_until};

/// Polls one worker for as long as it is polled itself, the first time at once.
pub(super) async fn watch(worker: Arc<Worker>, rules: LoadReports, scraper: Arc<Scraper>) {
    if rules.format == ReportChoice::None {
        if worker.lasting.reading.lock().lost(ReportState::Absent) {
            worker.lasting.changed();
        }
        return;
    }
    let mut source = ReportSource::new(&rules, worker.config.dp_size);
    let mut restarts = worker.lasting.restarts();
    let told = Changes::default();
    loop {
        let started = Instant::now();
        if restarts != worker.lasting.restarts() {
            restarts = worker.lasting.restarts();
            source.restarted();
        }
        if let Some(address) = worker.address() {
            let sent = worker.asked();
            let outcome = source.poll(&scraper, &target(&rules, &worker, address)).await;
            let problem = problem(&outcome);
            worker.answered(sent, outcome);
            tell(&worker.lasting, &rules, &told, problem);
        }
        sleep_until(on_a_beat(started + jittered(source.next_in(rules.interval)))).await;
    }
}

fn target(rules: &LoadReports, worker: &Worker, address: WorkerAddress) -> Target {
    let own = rules.auth.clone();
    let auth = own.or_else(|| worker.config.upstream_auth.clone());
    Target::new(&worker.config, address, auth)
}

impl Worker {
    /// A poll is sent to it now.
    pub fn asked(&self) -> Sent {
        Sent {
            at: self.lasting.now(),
            mark: self.live.ledger.mark(),
            in_flight: self.standing().in_flight,
        }
    }

    /// That poll ended. Decisions go by what it brought once its model publishes it.
    pub fn answered(&self, sent: Sent, outcome: PollOutcome) {
        book(&self.lasting, sent, outcome);
    }
}

fn book(worker: &Lasting, sent: Sent, outcome: PollOutcome) {
    let lost = |why| worker.reading.lock().lost(why);
    let (result, is_news) = match outcome {
        PollOutcome::Report(report) => {
            worker.is_there();
            let engine = worker.reading.lock().took(report, sent);
            match engine {
                Engine::Running => {}
                Engine::Restarted => {
                    log::info!("worker {}: its counters went back, it restarted", worker.id);
                    worker.came_back();
                }
            }
            (PollResult::Ok, true)
        }
        PollOutcome::Absent => (PollResult::Absent, lost(ReportState::Absent)),
        PollOutcome::Unauthorized => (PollResult::Unauthorized, lost(ReportState::Unauthorized)),
        PollOutcome::Unreadable(_) => (PollResult::Unreadable, lost(ReportState::Unreadable)),
        PollOutcome::Timeout => (PollResult::Timeout, false),
        PollOutcome::Unreachable(_) => (PollResult::Unreachable, false),
    };
    worker.metrics.polled(result);
    if is_news {
        worker.changed();
    }
}

fn problem(outcome: &PollOutcome) -> Option<String> {
    match outcome {
        PollOutcome::Report(_) => None,
        PollOutcome::Absent => Some("it has no load report".to_owned()),
        PollOutcome::Unauthorized => Some("it wants other credentials".to_owned()),
        PollOutcome::Unreadable(error) => Some(error.to_string()),
        PollOutcome::Timeout => Some("no answer in time".to_owned()),
        PollOutcome::Unreachable(error) => Some(error.clone()),
    }
}

/// One line per change of what is known, not per poll.
fn tell(
    worker: &Lasting,
    rules: &LoadReports,
    told: &Changes<ReportState>,
    problem: Option<String>,
) {
    let state = worker.report_state(rules);
    let Some(before) = told.to(state) else { return };
    match (before, state, problem) {
        (_, ReportState::Fresh, _) => log::info!("worker {}: reports its load", worker.id),
        // The health probes tell of a worker that is not there yet.
        (None, ReportState::Never, _) => {}
        (_, _, problem) => log::warn!(
            "worker {}: load unknown ({}){}",
            worker.id,
            state.as_str(),
            problem.map_or_else(String::new, |problem| format!(": {problem}"))
        ),
    }
}
