//! Every metric, once.
//!
//! One [`Metrics`] per edge, with a registry of its own, so that two edges in one process (a test,
//! an embedding program) do not share counts. Hot paths hold handles made once per model and
//! worker; nothing looks a label up while a request is served.

mod decisions;
mod outcome;
mod process;
mod queue;
mod register;
mod requests;
mod routes;
mod spread;
mod totals;
mod workers;

pub use decisions::{DecisionFamilies, DecisionMetrics};
pub use outcome::Outcome;
pub use process::{Limited, ProcessMetrics, Slow};
pub use queue::{QueueFamilies, QueueMetrics, QueueOutcome};
pub use register::Family;
pub use requests::{OTHER, RequestFamilies, RequestMetrics, RetryCause};
pub use routes::{RouteFamilies, RouteMetrics, RoutesView};
pub use spread::{Counts, Spread};
pub use totals::Totals;
pub use workers::{PollResult, ReportState, WorkerFamilies, WorkerMetrics, WorkerView};

use prometheus::TextEncoder;
use register::Register;

/// All metric families of one edge.
#[derive(Debug)]
pub struct Metrics {
    register: Register,
    /// One series per worker.
    pub workers: WorkerFamilies,
    /// What became of requests.
    pub requests: RequestFamilies,
    /// Where they were sent and why.
    pub decisions: DecisionFamilies,
    /// Learned routes.
    pub routes: RouteFamilies,
    /// Requests that wait at the edge.
    pub queue: QueueFamilies,
    /// The edge as a whole.
    pub process: ProcessMetrics,
}

impl Metrics {
    /// Registers everything; fails only if two families of ours share a name.
    pub fn new() -> prometheus::Result<Self> {
        let mut register = Register::default();
        Ok(Self {
            workers: WorkerFamilies::register(&mut register)?,
            requests: RequestFamilies::register(&mut register)?,
            decisions: DecisionFamilies::register(&mut register)?,
            routes: RouteFamilies::register(&mut register)?,
            queue: QueueFamilies::register(&mut register)?,
            process: ProcessMetrics::register(&mut register)?,
            register,
        })
    }

    /// Every family there is, whether anything was counted or not.
    pub fn families(&self) -> &[Family] {
        self.register.families()
    }

    /// The Prometheus text page.
    pub fn page(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.register.gather())
    }
}
