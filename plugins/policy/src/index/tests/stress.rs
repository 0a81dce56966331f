//! Many threads at once; what must hold at every instant and at the end.

use super::*;
use std::sync::atomic::AtomicBool;

const MOST: u64 = 3000;
const WRITERS: u64 = 4;
const ROUNDS: usize = 3000;

/// A small generator, so that each thread's sequence is its own and fixed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }

    /// One of 40 conversations of one of 8 tenants, to some turn.
    fn prompt(&mut self) -> Vec<PrefixKey> {
        let talk = self.below(40);
        let (system, turns) = (5 + self.below(3), 1 + self.below(60));
        [chain(1 + talk % 8, system), chain(100 + 8 * talk + system, turns)].concat()
    }
}

fn write(index: &PrefixIndex, slots: &[Slot], seed: u64) {
    let mut dice = Dice(seed);
    let mut flying: Vec<Credit> = Vec::new();
    for _ in 0..ROUNDS {
        let slot = slots[dice.below(slots.len() as u64) as usize];
        flying.push(index.credit(slot, &dice.prompt()));
        assert!(index.stats().entries <= MOST);
        let at = dice.below(flying.len() as u64) as usize;
        match dice.below(5) {
            0 => flying[at].first_byte(),
            1 => flying.swap_remove(at).refused(),
            2 => drop(flying.swap_remove(at)),
            _ => flying.swap_remove(at).completed(),
        }
        index.reported(slot, dice.below(100), dice.below(100), 100);
        if 16 < flying.len() {
            flying.clear();
        }
    }
}

fn read(index: &PrefixIndex, stop: &AtomicBool) {
    let mut dice = Dice(99);
    while !stop.load(Ordering::Relaxed) {
        let prompt = dice.prompt();
        let found = held(index, &prompt);
        let depth = prompt.len() as u32;
        assert!(found.iter().all(|&(_, blocks)| 0 < blocks && blocks <= depth));
        assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "a worker is named twice");
    }
}

/// Restarts workers, and replaces workers of its own.
fn churn(index: &PrefixIndex, slots: &[Slot], stop: &AtomicBool) {
    let mut dice = Dice(7);
    while !stop.load(Ordering::Relaxed) {
        let slot = index.add().unwrap();
        let credit = index.credit(slot, &dice.prompt());
        index.forget(slots[dice.below(slots.len() as u64) as usize]);
        index.set_capacity(slots[dice.below(slots.len() as u64) as usize], dice.below(900));
        index.remove(slot);
        credit.completed();
    }
}

#[test]
fn many_threads_leave_a_sound_index() {
    let index = index(MOST, 700);
    let slots: Vec<_> = (0..6).map(|_| index.add().unwrap()).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|seed| {
                scope.spawn({
                    let (index, slots) = (&index, &slots);
                    move || write(index, slots, seed)
                })
            })
            .collect();
        scope.spawn(|| read(&index, &stop));
        scope.spawn(|| churn(&index, &slots, &stop));
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    assert_at_rest(&index);
    let mut dice = Dice(1);
    for _ in 0..500 {
        let prompt = dice.prompt();
        let step_by_step: Vec<_> = slots
            .iter()
            .map(|&slot| {
                let holds = |key: &&PrefixKey| held(&index, &[**key]).contains(&(slot.0, 1));
                (slot.0, prompt.iter().take_while(holds).count() as u32)
            })
            .filter(|&(_, blocks)| 0 < blocks)
            .collect();
        assert_eq!(held(&index, &prompt), step_by_step);
    }
}
