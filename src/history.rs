//! The last ten minutes: what was counted and how busy the fleets were, so that a page that is opened
//! late shows how it came to this.
//!
//! Bounded: so many samples, and in each only the models that had something to do. Samples hold what
//! happened since the one before, so restarts and upgrades need no care; a process begins with none.
//!
//! Samples are counted, and whoever has seen some is told the later ones by that count. The time of day
//! is only shown: a clock that is set must neither hide samples nor tell them twice.

use crate::fleet::FleetLoad;
use crate::metrics::{Counts, Metrics, Outcome, Totals};
use crate::state::{State, unix_seconds};
use parking_lot::Mutex;
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::decision::Reason;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Between two samples.
pub const INTERVAL: Duration = Duration::from_secs(2);
/// Samples kept: ten minutes.
const CAPACITY: usize = 300;
/// Samples a quantile is of: half a minute.
const WINDOW: usize = 15;

/// Takes samples until `shutdown`. Needs a tokio runtime with time.
pub async fn run(state: Arc<State>, shutdown: impl Future<Output = ()>) {
    tokio::select! {
        () = record(&state) => {}
        () = shutdown => {}
    }
}

async fn record(state: &State) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = ticks.tick().await;
    state.history.begin(&state.metrics);
    loop {
        let now: Instant = ticks.tick().await;
        let running = state.running();
        let models = running.fleets.models().iter();
        let loads = models.map(|model| (model.config.name.clone(), model.load())).collect();
        state.history.push(unix_seconds(), now - last, &state.metrics, loads);
        last = now;
    }
}

/// The ring.
#[derive(Debug)]
pub struct History {
    /// Tells the counts of this process from those of the ones before and after it.
    run: u32,
    inner: Mutex<Inner>,
}

/// Up to where somebody has seen the samples of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    run: u32,
    seen: u64,
}

/// It is none.
#[derive(Debug)]
pub struct NoCursor;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run, self.seen)
    }
}

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let (run, seen) = text.split_once('-').ok_or(NoCursor)?;
        let run = run.parse().map_err(|_| NoCursor)?;
        Ok(Self { run, seen: seen.parse().map_err(|_| NoCursor)? })
    }
}

#[derive(Debug, Default)]
struct Inner {
    samples: VecDeque<Sample>,
    /// Samples taken so far, those in the ring among them.
    taken: u64,
    before: BTreeMap<String, Totals>,
    /// The latest counts of times to first content, by model.
    windows: BTreeMap<String, VecDeque<Counts>>,
}

#[derive(Debug)]
struct Sample {
    /// Milliseconds since 1970.
    time: u64,
    seconds: f64,
    all: Activity,
    models: BTreeMap<String, Activity>,
}

/// What one model, or all of them together, did in one sample.
#[derive(Clone, Debug, Default, PartialEq)]
struct Activity {
    totals: Totals,
    /// Milliseconds to first content: the median, and the 99th percentile.
    ttft: Option<(f64, f64)>,
    load: FleetLoad,
}

/// A sample as the page gets it.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// Milliseconds since 1970.
    time: u64,
    /// What the counts are divided by.
    seconds: f64,
    /// Requests that ended, by outcome; none of an outcome, no entry.
    #[serde(serialize_with = "by_outcome")]
    outcomes: [u64; Outcome::ALL.len()],
    /// Routed requests that ended, by reason, likewise.
    #[serde(serialize_with = "by_reason")]
    reasons: [u64; Reason::ALL.len()],
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    /// Of the last half minute.
    ttft_p50_ms: Option<f64>,
    ttft_p99_ms: Option<f64>,
    waiting: Option<u64>,
    running: Option<u64>,
    in_flight: u64,
    saturated: bool,
}

fn by_outcome<S: Serializer>(counts: &[u64; Outcome::ALL.len()], s: S) -> Result<S::Ok, S::Error> {
    counted(Outcome::ALL.iter().map(|outcome| outcome.as_str()).zip(*counts), s)
}

fn by_reason<S: Serializer>(counts: &[u64; Reason::ALL.len()], s: S) -> Result<S::Ok, S::Error> {
    counted(Reason::ALL.iter().map(|reason| reason.as_str()).zip(*counts), s)
}

fn counted<S: Serializer>(
    counts: impl Iterator<Item = (&'static str, u64)>,
    s: S,
) -> Result<S::Ok, S::Error> {
    let mut map = s.serialize_map(None)?;
    for (name, count) in counts.filter(|(_, count)| 0 < *count) {
        map.serialize_entry(name, &count)?;
    }
    map.end()
}

impl Default for History {
    fn default() -> Self {
        Self { run: fastrand::u32(..), inner: Mutex::default() }
    }
}

impl History {
    /// Samples that are later than what was seen, of one model or of all together, the oldest first,
    /// and what is seen with them. All there are, if that was of another process.
    pub fn since(&self, seen: Option<Cursor>, model: Option<&str>) -> (Vec<Shown>, Cursor) {
        let inner = self.inner.lock();
        let seen = seen.filter(|seen| seen.run == self.run).map_or(0, |cursor| cursor.seen);
        let later = usize::try_from(inner.taken.saturating_sub(seen)).unwrap_or(usize::MAX);
        let nothing = Activity::default();
        let samples = inner.samples.iter().skip(inner.samples.len().saturating_sub(later));
        let samples = samples.map(|sample| {
            let activity = match model {
                Some(model) => sample.models.get(model).unwrap_or(&nothing),
                None => &sample.all,
            };
            sample.shown(activity)
        });
        (samples.collect(), Cursor { run: self.run, seen: inner.taken })
    }

    /// What was counted before is in no sample.
    fn begin(&self, metrics: &Metrics) {
        self.inner.lock().before = metrics.totals();
    }

    fn push(
        &self,
        time: f64,
        elapsed: Duration,
        metrics: &Metrics,
        loads: BTreeMap<String, FleetLoad>,
    ) {
        let totals = metrics.totals();
        let mut inner = self.inner.lock();
        for (model, spread) in metrics.requests.spreads() {
            let window = inner.windows.entry(model).or_default();
            window.push_back(spread.take());
            if WINDOW < window.len() {
                window.pop_front();
            }
        }
        inner.windows.retain(|_, window| window.iter().any(|counts| !counts.is_empty()));
        let mut models: BTreeMap<String, Activity> = BTreeMap::new();
        for (model, load) in loads {
            models.entry(model).or_default().load = load;
        }
        for (model, now) in &totals {
            let before = inner.before.get(model).cloned().unwrap_or_default();
            models.entry(model.clone()).or_default().totals = less(now, &before);
        }
        for (model, activity) in &mut models {
            activity.ttft = inner.windows.get(model).and_then(quantiles);
        }
        let mut all = sum(models.values());
        all.ttft = quantiles(inner.windows.values().flatten());
        models.retain(|_, activity| !activity.is_idle());
        inner.before = totals;
        if inner.samples.len() == CAPACITY {
            inner.samples.pop_front();
        }
        inner.taken += 1;
        let (time, seconds) = ((time * 1000.0) as u64, elapsed.as_secs_f64());
        inner.samples.push_back(Sample { time, seconds, all, models });
    }
}

impl Sample {
    fn shown(&self, activity: &Activity) -> Shown {
        let (totals, load) = (&activity.totals, &activity.load);
        Shown {
            time: self.time,
            seconds: self.seconds,
            outcomes: totals.outcomes,
            reasons: totals.reasons,
            prompt_tokens: totals.prompt_tokens,
            cached_tokens: totals.cached_tokens,
            completion_tokens: totals.completion_tokens,
            ttft_p50_ms: activity.ttft.map(|(median, _)| median),
            ttft_p99_ms: activity.ttft.map(|(_, high)| high),
            waiting: load.waiting,
            running: load.running,
            in_flight: load.in_flight,
            saturated: load.is_saturated,
        }
    }
}

impl Activity {
    fn is_idle(&self) -> bool {
        let FleetLoad { waiting, running, in_flight, .. } = self.load;
        self.totals == Totals::default()
            && self.ttft.is_none()
            && waiting.is_none_or(|waiting| waiting == 0)
            && running.is_none_or(|running| running == 0)
            && in_flight == 0
    }
}

fn less(now: &Totals, before: &Totals) -> Totals {
    let mut rest = now.clone();
    let pairs = rest.outcomes.iter_mut().zip(before.outcomes);
    let pairs = pairs.chain(rest.reasons.iter_mut().zip(before.reasons));
    let tokens = [
        (&mut rest.prompt_tokens, before.prompt_tokens),
        (&mut rest.cached_tokens, before.cached_tokens),
        (&mut rest.completion_tokens, before.completion_tokens),
    ];
    for (count, before) in pairs.chain(tokens) {
        *count = count.saturating_sub(before);
    }
    rest
}

fn sum<'a>(activities: impl Iterator<Item = &'a Activity>) -> Activity {
    let mut all = Activity::default();
    for Activity { totals, load, ttft: _ } in activities {
        let of = &mut all.totals;
        let pairs = of.outcomes.iter_mut().zip(totals.outcomes);
        for (count, more) in pairs.chain(of.reasons.iter_mut().zip(totals.reasons)) {
            *count += more;
        }
        of.prompt_tokens += totals.prompt_tokens;
        of.cached_tokens += totals.cached_tokens;
        of.completion_tokens += totals.completion_tokens;
        let known = |all: Option<u64>, more: Option<u64>| match (all, more) {
            (Some(all), Some(more)) => Some(all + more),
            (one, other) => one.or(other),
        };
        all.load.waiting = known(all.load.waiting, load.waiting);
        all.load.running = known(all.load.running, load.running);
        all.load.in_flight += load.in_flight;
        all.load.is_saturated |= load.is_saturated;
    }
    all
}

fn quantiles<'a>(counts: impl IntoIterator<Item = &'a Counts>) -> Option<(f64, f64)> {
    let mut all = Counts::default();
    counts.into_iter().for_each(|counts| all.add(counts));
    Some((all.quantile(0.5)?, all.quantile(0.99)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::prompt::Dialect;
    use serde_json::{Value, json};

    const SECOND: Duration = Duration::from_secs(1);

    fn push(history: &History, time: f64, metrics: &Metrics) {
        history.push(time, SECOND, metrics, BTreeMap::new());
    }

    fn shown(history: &History, model: Option<&str>) -> Vec<Value> {
        history.since(None, model).0.iter().map(|shown| json!(shown)).collect()
    }

    #[test]
    fn a_sample_has_what_happened_since_the_one_before() {
        let (metrics, history) = (Metrics::new().unwrap(), History::default());
        let model = metrics.requests.model("m");
        model.ended(Dialect::Chat, 200, Outcome::Ok);
        history.begin(&metrics);
        push(&history, 1.0, &metrics);
        model.ended(Dialect::Chat, 200, Outcome::Ok);
        model.ended(Dialect::Chat, 200, Outcome::Ok);
        metrics.requests.model("n").ended(Dialect::Chat, 503, Outcome::WorkerBusy);
        push(&history, 2.0, &metrics);
        let all = shown(&history, None);
        assert_eq!(all[0]["outcomes"], json!({}));
        assert_eq!(all[1]["outcomes"], json!({"ok": 2, "worker_busy": 1}));
        assert_eq!(shown(&history, Some("m"))[1]["outcomes"], json!({"ok": 2}));
        assert_eq!(shown(&history, Some("unknown"))[1]["outcomes"], json!({}));
    }

    #[test]
    fn only_what_is_later_is_given_and_the_ring_is_bounded() {
        let (metrics, history) = (Metrics::new().unwrap(), History::default());
        push(&history, 0.0, &metrics);
        let (_, early) = history.since(None, None);
        for time in 1..CAPACITY + 5 {
            push(&history, time as f64, &metrics);
        }
        let (all, cursor) = history.since(None, None);
        assert_eq!(all.len(), CAPACITY);
        assert_eq!(all[0].time, 5_000);
        assert_eq!(history.since(Some(early), None).0.len(), CAPACITY, "more came than are kept");
        assert_eq!(history.since(Some(cursor), None).0.len(), 0);
        push(&history, 1e6, &metrics);
        let (later, _) = history.since(Some(cursor.to_string().parse().unwrap()), None);
        assert_eq!(later.iter().map(|of| of.time).collect::<Vec<_>>(), [1_000_000_000]);
    }

    #[test]
    fn a_clock_that_is_set_neither_hides_samples_nor_tells_them_twice() {
        const DAY: f64 = 86_400.0;
        let (metrics, history) = (Metrics::new().unwrap(), History::default());
        let model = metrics.requests.model("m");
        let mut cursor = None;
        for time in [2.0 * DAY, DAY, 2.0 * DAY, 2.0 * DAY, 3.0 * DAY, 0.0] {
            model.ended(Dialect::Chat, 200, Outcome::Ok);
            push(&history, time, &metrics);
            let (later, seen) = history.since(cursor, None);
            cursor = Some(seen);
            let [sample] = &later[..] else { panic!("{later:?}") };
            assert_eq!((sample.time, sample.seconds), ((time * 1e3) as u64, 1.0));
            assert_eq!(sample.outcomes.iter().sum::<u64>(), 1);
        }
    }

    #[test]
    fn what_was_seen_of_another_process_hides_nothing_of_this_one() {
        let metrics = Metrics::new().unwrap();
        let [before, after] = [1, 2].map(|run| History { run, ..History::default() });
        (0..9).for_each(|time| push(&before, f64::from(time), &metrics));
        push(&after, 1.0, &metrics);
        let (_, cursor) = before.since(None, None);
        let (all, own) = after.since(Some(cursor), None);
        assert_eq!(all.len(), 1);
        assert_eq!(after.since(Some(own), None).0.len(), 0);
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for text in ["", "-", "1", "1-", "-1", "1-2-3", "1-x", "4294967296-1", "1764567890123"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }

    #[test]
    fn quantiles_are_of_half_a_minute_and_then_gone() {
        let (metrics, history) = (Metrics::new().unwrap(), History::default());
        let model = metrics.requests.model("m");
        for _ in 0..100 {
            model.first_content(Duration::from_millis(200));
        }
        metrics.requests.model("n").first_content(Duration::from_secs(20));
        for time in 0..=WINDOW {
            push(&history, time as f64 + 1.0, &metrics);
        }
        let median = |row: &Value| row["ttft_p50_ms"].as_f64();
        let high = |row: &Value| row["ttft_p99_ms"].as_f64();
        let (all, one) = (shown(&history, None), shown(&history, Some("n")));
        assert!((180.0..220.0).contains(&median(&all[WINDOW - 1]).unwrap()), "{all:?}");
        assert!(15_000.0 < high(&one[0]).unwrap(), "{one:?}");
        assert_eq!((median(&all[WINDOW]), high(&one[WINDOW])), (None, None));
    }

    #[test]
    fn a_model_at_rest_takes_no_room() {
        let (metrics, history) = (Metrics::new().unwrap(), History::default());
        let resting = FleetLoad { waiting: Some(0), ..FleetLoad::default() };
        let busy = FleetLoad { waiting: Some(3), in_flight: 2, ..FleetLoad::default() };
        let loads = [("rest".to_owned(), resting), ("busy".to_owned(), busy)];
        history.push(1.0, SECOND, &metrics, loads.into_iter().collect());
        let names: Vec<String> = history.inner.lock().samples[0].models.keys().cloned().collect();
        assert_eq!(names, ["busy"]);
        assert_eq!(shown(&history, None)[0]["waiting"], 3);
        assert_eq!(shown(&history, Some("busy"))[0]["in_flight"], 2);
    }
}
