//! A model in layer shards: how fast a route through simulated nodes is.
//!
//! A node computes so many layers per second, and a route generates as fast as its slowest hop: a
//! node that is given half of its layers is twice as fast. Absent on purpose: the network between
//! nodes, and what requests at once cost each other beyond the head's own engine.

use super::clock::Clock;
use super::engine::Progress;
use http::HeaderValue;
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Speeds of nodes by name, layers per second. Clones are the same nodes.
#[derive(Clone, Debug, Default)]
pub struct Nodes(Arc<Mutex<BTreeMap<String, f64>>>);

/// One element of `x-tidegate-route`.
#[derive(Clone, Debug, Deserialize)]
struct Hop {
    node: String,
    start_layer: u32,
    end_layer: u32,
}

/// Layers per second of a node that is so slow that it counts as standing still.
const SLOWEST: f64 = 1e-3;

impl Nodes {
    /// From its next token on a node is so fast; throttled or new.
    pub fn set(&self, node: &str, layers_per_second: f64) {
        let speed = if layers_per_second.is_finite() { layers_per_second } else { SLOWEST };
        self.0.lock().insert(node.to_owned(), speed.max(SLOWEST));
    }

    /// Tokens per second of the slowest hop.
    fn slowest(&self, hops: &[Hop]) -> Result<f64, String> {
        let nodes = self.0.lock();
        let mut slowest = f64::INFINITY;
        for hop in hops {
            let speed = nodes.get(&hop.node).ok_or_else(|| format!("no node {:?}", hop.node))?;
            let layers =
                hop.end_layer.checked_sub(hop.start_layer).ok_or("layers run backwards")?;
            slowest = slowest.min(speed / (f64::from(layers) + 1.0));
        }
        Ok(slowest)
    }
}

/// The pace of one request's tokens along its route.
#[derive(Debug)]
pub(super) struct Pace {
    nodes: Nodes,
    hops: Vec<Hop>,
    clock: Clock,
    /// When the next token is through the route's last hop.
    due: Duration,
}

impl Pace {
    /// Of a request with this `x-tidegate-route`; `None`: it takes no route. The error says what is
    /// wrong with it.
    pub(super) fn of(
        nodes: &Nodes,
        route: Option<&HeaderValue>,
        clock: Clock,
    ) -> Result<Option<Self>, String> {
        let Some(route) = route else { return Ok(None) };
        let hops: Vec<Hop> =
            serde_json::from_slice(route.as_bytes()).map_err(|error| error.to_string())?;
        nodes.slowest(&hops)?;
        Ok(Some(Self { nodes: nodes.clone(), hops, clock, due: clock.now() }))
    }

    /// Waits until the route has passed on tokens of `progress` beyond `seen`, at most `step`; what
    /// there is to show then.
    pub(super) async fn next(&mut self, progress: Progress, seen: u32, step: u32) -> Progress {
        let generated = progress.generated.min(seen.saturating_add(step.max(1)));
        // The nodes were there at the start, and none is ever taken away.
        let tps = self.nodes.slowest(&self.hops).unwrap_or(f64::INFINITY);
        let time = f64::from(generated.saturating_sub(seen)) / tps;
        self.due = self.due.saturating_add(Duration::from_secs_f64(time.min(1e6)));
        self.clock.sleep_until(self.due).await;
        let finished = progress.finished && generated == progress.generated;
        Progress { generated, finished, ..progress }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ROUTE: &str = r#"[{"node":"gpu","url":"http://a","start_layer":0,"end_layer":21},
        {"node":"cpu","url":"http://b","start_layer":22,"end_layer":39}]"#;

    fn nodes() -> Nodes {
        let nodes = Nodes::default();
        nodes.set("gpu", 2_200.0);
        nodes.set("cpu", 900.0);
        nodes
    }

    #[test]
    fn a_route_is_as_fast_as_its_slowest_hop_with_the_layers_it_is_given() {
        let hops: Vec<Hop> = serde_json::from_str(ROUTE).unwrap();
        let nodes = nodes();
        assert_eq!(nodes.slowest(&hops), Ok(50.0));
        nodes.set("gpu", 440.0);
        assert_eq!(nodes.slowest(&hops), Ok(20.0));
    }

    #[test]
    fn a_route_that_is_none_is_refused() {
        let clock = Clock::start(1.0);
        let pace = |text: &'static str| {
            Pace::of(&nodes(), Some(&HeaderValue::from_static(text)), clock).map(|_| ())
        };
        for text in ["", "7", r#"[{"node":"x","start_layer":0,"end_layer":1}]"#] {
            assert!(pace(text).is_err(), "{text}");
        }
        assert!(pace(r#"[{"node":"gpu","start_layer":2,"end_layer":1}]"#).is_err());
        assert!(Pace::of(&nodes(), None, clock).unwrap().is_none());
    }

    #[tokio::test]
    async fn tokens_come_at_the_pace_of_the_route_and_no_faster() {
        let clock = Clock::start(10_000.0);
        let route = HeaderValue::from_bytes(ROUTE.replace('\n', "").as_bytes()).unwrap();
        let mut pace = Pace::of(&nodes(), Some(&route), clock).unwrap().unwrap();
        let begun = pace.due;
        let all = Progress { generated: 100, finished: true, ..Progress::default() };
        let first = pace.next(all, 0, 60).await;
        assert_eq!((first.generated, first.finished), (60, false));
        let last = pace.next(all, 60, 60).await;
        assert_eq!((last.generated, last.finished), (100, true));
        assert_eq!(pace.due - begun, Duration::from_secs(2));
        assert!(pace.due <= clock.now());
    }
}
