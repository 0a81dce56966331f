//! Which limit and floor a fleet should have, and why.
//!
//! All pairs of a coarse grid, both selections and what is configured run over the same arrivals.
//! Whoever sheds or loses more requests than need be is passed over: those it answers are the quicker
//! for it. Of the others the best has the least geometric mean of the time to first token; among those
//! that seeds cannot tell from it, the least p99.

use super::compare::Compared;
use super::figures::Figures;
use std::fmt::Write;

/// What is tried besides what is there: a gate without and with a floor, no gate, and cost selection.
pub const TRIED: [&str; 8] = [
    "cost",
    "affinity",
    "readmit:limit=2/4/8/16/32",
    "ladder:limit=2,floor=1/2",
    "ladder:limit=4,floor=1/2/4",
    "ladder:limit=8,floor=1/2/4/8",
    "ladder:limit=16,floor=1/4/8/16",
    "ladder:limit=32,floor=1/4/16/32",
];

/// Means this near the best's are taken for equal, whatever the seeds say.
const EQUAL: f64 = 1.01;
/// More of the requests without an answer than the least of anybody, and a rule set is passed over.
const UNANSWERED: f64 = 0.002;

/// Medians over the seeds of one rule set.
#[derive(Clone, Copy, Debug)]
struct Medians {
    first_token: f64,
    p99: f64,
    waited_p99: f64,
    hit_rate: f64,
    computed: f64,
    diverted: f64,
    unanswered: f64,
}

impl Medians {
    fn of(set: &Compared) -> Self {
        let diverted = |run: &Figures| {
            let routed: u64 = run.decisions.values().sum();
            let diverted = run.decisions.get("diverted").copied().unwrap_or(0);
            diverted as f64 / (routed as f64).max(1.0)
        };
        Self {
            first_token: set.median(|run| run.first_token.geometric_mean),
            p99: set.median(|run| run.first_token.p99),
            waited_p99: set.median(|run| run.waited.p99),
            hit_rate: set.median(|run| run.hit_rate),
            computed: set.median(|run| run.computed_tokens as f64),
            diverted: set.median(diverted),
            unanswered: set.median(unanswered),
        }
    }
}

/// Requests shed or lost, of all.
fn unanswered(run: &Figures) -> f64 {
    let without = run.failed + run.shed;
    without as f64 / ((run.answered + without) as f64).max(1.0)
}

/// The suggestion, in words. The first rule set is what is there now; `None`: nothing was compared.
pub fn suggestion(compared: &[Compared]) -> Option<String> {
    let now = compared.first()?;
    let best = best(compared)?;
    let (was, is) = (Medians::of(now), Medians::of(best));
    let mut text = format!(
        "Suggested: {}, of {} rule sets over {} seeds.\n",
        best.name,
        compared.len(),
        best.runs.len()
    );
    let mut say = |line: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {line}");
    };
    let ratio = is.first_token / was.first_token.max(1e-9);
    if best.name == now.name {
        say(format!(
            "It is what is there; its first token takes {:.3} s (geometric mean).",
            is.first_token
        ));
    } else {
        say(format!(
            "First token: {:.3} s (geometric mean) against {:.3} s of `{}`, {:.2} of it; p99 {:.2} s against {:.2} s.",
            is.first_token, was.first_token, now.name, ratio, is.p99, was.p99
        ));
        say(reason(&was, &is));
    }
    if let Some(line) = passed_over(compared, best) {
        say(line);
    }
    for line in neighbours(compared, best) {
        say(line);
    }
    let spread = best.spread(|run| run.first_token.geometric_mean);
    say(format!(
        "Its runs lie {:.1} % apart from seed to seed: a smaller difference means nothing.",
        100.0 * spread
    ));
    Some(text)
}

fn best(compared: &[Compared]) -> Option<&Compared> {
    let mean = |set: &&Compared| Medians::of(set).first_token;
    let answer = answering(compared);
    let least = answer.iter().min_by(|a, b| mean(a).total_cmp(&mean(b)))?;
    let limit =
        mean(least) * EQUAL.max(1.0 + least.spread(|run| run.first_token.geometric_mean) / 4.0);
    let equals = answer.iter().copied().filter(|set| mean(set) <= limit);
    equals.min_by(|a, b| Medians::of(a).p99.total_cmp(&Medians::of(b).p99))
}

/// Those that leave no more requests without an answer than need be.
fn answering(compared: &[Compared]) -> Vec<&Compared> {
    let without = |set: &Compared| Medians::of(set).unanswered;
    let least = compared.iter().map(without).fold(f64::INFINITY, f64::min);
    compared.iter().filter(|set| without(set) <= least + UNANSWERED).collect()
}

/// Who would have been quicker, if requests without an answer did not count.
fn passed_over(compared: &[Compared], best: &Compared) -> Option<String> {
    let own = Medians::of(best);
    let answer = answering(compared);
    let quicker = compared.iter().filter_map(|set| {
        let is_out = !answer.iter().any(|other| std::ptr::eq(*other, set));
        let other = Medians::of(set);
        (is_out && other.first_token < own.first_token).then(|| {
            format!("{} ({:.1} %, {:.3} s)", set.name, 100.0 * other.unanswered, other.first_token)
        })
    });
    let quicker: Vec<String> = quicker.collect();
    let all = 100.0 * own.unanswered;
    match (quicker.is_empty(), own.unanswered) {
        (true, 0.0) => None,
        (true, _) => Some(format!(
            "{all:.1} % of the requests are shed or lost, and no rule set has clearly less."
        )),
        (false, _) => Some(format!(
            "{all:.1} % of the requests are shed or lost. Quicker, and passed over for the requests they \
             shed or lose: {}.",
            quicker.join(", ")
        )),
    }
}

/// What the better one does otherwise.
fn reason(was: &Medians, is: &Medians) -> String {
    let points = 100.0 * (is.hit_rate - was.hit_rate);
    let computed = is.computed / was.computed.max(1.0);
    if 0.5 <= points {
        return format!(
            "Why: prompts find their prefix more often, hit rate {:.1} % against {:.1} %, so {:.2} of the \
             tokens are computed; {:.1} % of the requests are diverted, against {:.1} %.",
            100.0 * is.hit_rate,
            100.0 * was.hit_rate,
            computed,
            100.0 * is.diverted,
            100.0 * was.diverted
        );
    }
    format!(
        "Why: requests wait less behind each other, p99 in the queue {:.2} s against {:.2} s, at a hit \
         rate of {:.1} % against {:.1} %.",
        is.waited_p99,
        was.waited_p99,
        100.0 * is.hit_rate,
        100.0 * was.hit_rate
    )
}

/// What becomes of the best one with another limit or another floor.
fn neighbours(compared: &[Compared], best: &Compared) -> Vec<String> {
    let Some(own) = LimitAndFloor::of(&best.name) else { return Vec::new() };
    let mean = |set: &Compared| Medians::of(set).first_token;
    let lines = |what: &str, is_near: &dyn Fn(&LimitAndFloor) -> bool| {
        let near = compared.iter().filter_map(|set| {
            let other = LimitAndFloor::of(&set.name)?;
            (other != own && is_near(&other)).then(|| {
                let change = 100.0 * (mean(set) / mean(best).max(1e-9) - 1.0);
                format!("{} {change:+.0} %", set.name)
            })
        });
        let near: Vec<String> = near.collect();
        (!near.is_empty()).then(|| format!("With another {what}: {}.", near.join(", ")))
    };
    let limits = lines("limit", &|other| other.floor == own.floor);
    let floors = lines("floor", &|other| other.limit == own.limit);
    limits.into_iter().chain(floors).collect()
}

/// The two numbers, read out of a name of [`TRIED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LimitAndFloor {
    limit: u64,
    floor: Option<u64>,
}

impl LimitAndFloor {
    fn of(name: &str) -> Option<Self> {
        let (_, settings) = name.split_once(':')?;
        let number = |key: &str| {
            let values = settings.split(',').filter_map(|setting| setting.split_once('='));
            values.filter(|(own, _)| *own == key).find_map(|(_, value)| value.parse().ok())
        };
        Some(Self { limit: number("limit")?, floor: number("floor") })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::figures::Times;
    use super::*;
    use std::collections::BTreeMap;

    fn set(name: &str, means: &[f64], p99: f64, hit_rate: f64) -> Compared {
        let run = |&geometric_mean: &f64| Figures {
            answered: 100,
            failed: 0,
            shed: 0,
            hit_rate,
            first_token: Times { geometric_mean, p50: 1.0, p90: 2.0, p99 },
            total: Times::default(),
            waited: Times::default(),
            computed_tokens: 1_000,
            imbalance: 1.0,
            decisions: BTreeMap::from([("diverted", 25), ("owner", 75)]),
            seconds: 9.0,
        };
        Compared { name: name.to_owned(), runs: means.iter().map(run).collect() }
    }

    #[test]
    fn the_least_mean_wins_and_says_why() {
        let text = suggestion(&[
            set("file", &[2.0, 2.2], 9.0, 0.2),
            set("ladder:limit=8,floor=2", &[1.0, 1.01], 5.0, 0.3),
            set("ladder:limit=16,floor=2", &[1.5, 1.5], 5.0, 0.3),
            set("ladder:limit=8,floor=4", &[1.2, 1.2], 5.0, 0.3),
        ])
        .unwrap();
        for part in [
            "Suggested: ladder:limit=8,floor=2, of 4",
            "of `file`, 0.48 of it",
            "hit rate 30.0 % against 20.0 %",
            "another limit: ladder:limit=16,floor=2 +49 %",
            "another floor: ladder:limit=8,floor=4 +19 %",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn among_equals_the_lower_p99_wins() {
        let sets = [
            set("cost", &[1.0, 1.0], 9.0, 0.2),
            set("affinity", &[1.005, 1.005], 7.0, 0.2),
            set("readmit:limit=2", &[1.2, 1.2], 5.0, 0.2),
        ];
        assert_eq!(best(&sets).unwrap().name, "affinity");
    }

    #[test]
    fn who_sheds_is_passed_over_however_quick_the_rest() {
        let mut sheds = set("file", &[0.1, 0.1], 0.5, 0.2);
        for run in &mut sheds.runs {
            (run.answered, run.shed) = (50, 50);
        }
        let mut loses = set("affinity", &[0.2, 0.2], 0.5, 0.2);
        loses.runs.iter_mut().for_each(|run| run.failed = 5);
        let all = [sheds, loses, set("cost", &[1.0, 1.0], 5.0, 0.2)];
        let text = suggestion(&all).unwrap();
        for part in [
            "Suggested: cost, of 3",
            "0.0 % of the requests are shed or lost. Quicker, and passed over",
            "file (50.0 %, 0.100 s), affinity (4.8 %, 0.200 s).",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // Where everybody sheds, nobody is passed over.
        let text = suggestion(&all[..1]).unwrap();
        assert!(text.contains("50.0 % of the requests are shed or lost, and no rule"), "{text}");
        let text = suggestion(&all[2..]).unwrap();
        assert!(!text.contains("shed"), "{text}");
    }

    #[test]
    fn what_is_there_may_be_the_best() {
        let text = suggestion(&[set("cost", &[1.0], 1.0, 0.2), set("affinity", &[2.0], 1.0, 0.2)]);
        assert!(text.unwrap().contains("It is what is there"));
        assert!(suggestion(&[]).is_none());
    }
}
