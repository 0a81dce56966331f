//! The ledger against a list that is searched and summed from scratch after every step.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Dispatch { tokens: u64, streamed: bool },
    FirstByte(prop::sample::Index),
    Finish(prop::sample::Index),
    Cancel(prop::sample::Index),
    Mark,
    Publish(prop::sample::Index),
    Wait(u64),
    Expect,
}

fn step() -> impl Strategy<Value = Step> {
    let tokens = prop_oneof![0..5_000_u64, Just(u64::MAX)];
    prop_oneof![
        4 => (tokens, any::<bool>()).prop_map(|(tokens, streamed)| Step::Dispatch { tokens, streamed }),
        2 => any::<prop::sample::Index>().prop_map(Step::FirstByte),
        1 => any::<prop::sample::Index>().prop_map(Step::Finish),
        2 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        1 => Just(Step::Mark),
        1 => any::<prop::sample::Index>().prop_map(Step::Publish),
        1 => (0..500_u64).prop_map(Step::Wait),
        1 => Just(Step::Expect),
    ]
}

struct Sent {
    number: usize,
    tokens: u64,
    streamed: bool,
    at: u64,
}

#[derive(Default)]
struct Model {
    now: u64,
    dispatched: usize,
    ended: u64,
    /// Without a first byte, in the order of dispatch.
    line: Vec<Sent>,
    last_first_byte: u64,
    reported: usize,
}

impl Model {
    fn clear_through(&mut self, number: usize) {
        self.line.retain(|sent| number < sent.number);
        self.last_first_byte = self.now;
    }

    /// At 2,000 tokens per second.
    fn expect(&mut self) {
        while let Some(head) = self.line.first().filter(|head| !head.streamed) {
            let done = u128::from(head.at.max(self.last_first_byte)) + u128::from(head.tokens) / 2;
            let Some(done) = u64::try_from(done).ok().filter(|&done| done <= self.now) else {
                return;
            };
            self.line.remove(0);
            self.last_first_byte = done;
        }
    }

    fn sum<'a>(sent: impl Iterator<Item = &'a Sent>) -> Outstanding {
        let zero = Outstanding::default();
        let sum = sent.fold(zero, |sum, sent| Outstanding {
            uncached_tokens: sum.uncached_tokens.saturating_add(sent.tokens),
            requests: sum.requests + 1,
        });
        Outstanding { uncached_tokens: sum.uncached_tokens.min(MOST_TOKENS), ..sum }
    }

    fn line(&self, speed: u64, waiting: u64, mean: u64) -> u64 {
        let head = self.line.first().map_or(0, |head| {
            let elapsed = self.now - head.at.max(self.last_first_byte);
            (elapsed * speed / 1_000).min(head.tokens)
        });
        let line = Self::sum(self.line.iter()).uncached_tokens.saturating_sub(head);
        let since = Self::sum(self.since()).uncached_tokens;
        let cap = waiting + since + mean;
        let line = line + waiting;
        if self.line.iter().any(|sent| !sent.streamed) { line.min(cap) } else { line }
    }

    fn since(&self) -> impl Iterator<Item = &Sent> {
        self.line.iter().filter(|sent| self.reported <= sent.number)
    }
}

fn pick<T>(list: &mut Vec<T>, index: prop::sample::Index) -> Option<T> {
    (!list.is_empty()).then(|| list.swap_remove(index.index(list.len())))
}

fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (ledger, mut model) = (Ledger::default(), Model::default());
    let mut open: Vec<(usize, Ticket)> = Vec::new();
    let mut marks: Vec<(usize, Mark)> = Vec::new();
    for step in steps {
        let now = Millis(model.now);
        match step {
            Step::Dispatch { tokens, streamed } => {
                let number = model.dispatched;
                model.dispatched += 1;
                model.line.push(Sent { number, tokens, streamed, at: model.now });
                let streaming = if streamed { Streamed } else { Unstreamed };
                open.push((number, ledger.dispatch(tokens, streaming, now)));
            }
            Step::FirstByte(index) if !open.is_empty() => {
                let (number, ticket) = &open[index.index(open.len())];
                let is_in_line = model.line.iter().any(|sent| sent.number == *number);
                if is_in_line || !ticket.entry.is_unstreamed() {
                    model.clear_through(*number);
                }
                ledger.first_byte(ticket, now);
            }
            Step::Finish(index) => {
                let Some((number, ticket)) = pick(&mut open, index) else { continue };
                if model.line.iter().any(|sent| sent.number == number) {
                    model.clear_through(number);
                }
                model.ended += 1;
                ledger.finish(ticket, now);
            }
            Step::Cancel(index) => {
                let Some((number, ticket)) = pick(&mut open, index) else { continue };
                model.line.retain(|sent| sent.number != number);
                model.ended += 1;
                ledger.cancel(ticket);
            }
            Step::Mark => {
                let mark = ledger.mark();
                prop_assert_eq!(mark.outstanding, Model::sum(model.line.iter()));
                marks.push((model.dispatched, mark));
            }
            Step::Publish(index) => {
                let Some((number, mark)) = pick(&mut marks, index) else { continue };
                model.reported = number;
                ledger.report_published(&mark);
            }
            Step::Wait(ms) => model.now += ms,
            Step::Expect => {
                model.expect();
                ledger.expect(2_000, now);
            }
            Step::FirstByte(_) => {}
        }
        compare(&ledger, &model, open.len() as u64)?;
    }
    Ok(())
}

fn compare(ledger: &Ledger, model: &Model, open: u64) -> Result<(), TestCaseError> {
    prop_assert_eq!(ledger.outstanding(), Model::sum(model.line.iter()));
    prop_assert_eq!(ledger.since_report(), Model::sum(model.since()));
    prop_assert_eq!(ledger.in_flight(), open);
    prop_assert_eq!(ledger.events(), model.dispatched as u64 + model.ended);
    let report = native(1, 300);
    let line = ledger.line(Millis(model.now), 2_000, Some(&ReportedWork::of(&report)), 50);
    prop_assert_eq!(line, model.line(2_000, 300, 50));
    Ok(())
}

proptest! {
    #[test]
    fn the_ledger_is_the_list(steps in proptest::collection::vec(step(), 0..120)) {
        run(steps)?;
    }
}
