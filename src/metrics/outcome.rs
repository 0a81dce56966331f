//! How a request, or one attempt at a worker, ended.

/// A closed set; the outcomes of requests add up to all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Answered in full with 1xx to 3xx.
    Ok,
    /// 4xx other than 429 from a worker, or a request the edge refused.
    ClientError,
    /// 429, 503 or 529 from an engine.
    WorkerBusy,
    /// Another 5xx, or a broken answer.
    WorkerError,
    /// No connection to any worker tried.
    Unreachable,
    /// First byte or next byte too late.
    Timeout,
    /// The client left.
    Cancelled,
    /// Refused because the fleet is saturated, at once or after a wait at the edge.
    Shed,
    /// The edge could not route it, or failed.
    EdgeError,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Ok,
        Self::ClientError,
        Self::WorkerBusy,
        Self::WorkerError,
        Self::Unreachable,
        Self::Timeout,
        Self::Cancelled,
        Self::Shed,
        Self::EdgeError,
    ];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ClientError => "client_error",
            Self::WorkerBusy => "worker_busy",
            Self::WorkerError => "worker_error",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Shed => "shed",
            Self::EdgeError => "edge_error",
        }
    }
}
