use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A slot in a near word or a far one, up to the last there can be.
fn slot() -> impl Strategy<Value = u16> {
    let last = super::super::MAX_WORKERS as u16 - 1;
    (0u16..24, 0usize..3).prop_map(move |(pick, form)| [pick, pick * 64 + 63, last - pick][form])
}

#[test]
fn a_word_takes_four() {
    let four: Few = (0..4).map(Slot).collect();
    assert_eq!(four.with(Slot(4)), None);
    assert!(four != Few::MANY && !four.contains(Slot(4)));
    assert_eq!((0..9).map(Slot).collect::<Few>(), four);
}

proptest! {
    #[test]
    fn a_word_is_a_set(steps in prop::collection::vec(slot(), 1..100)) {
        let mut model = BTreeSet::new();
        let mut few = Few::NOBODY;
        for slot in steps {
            prop_assert_eq!(few.contains(Slot(slot)), model.contains(&slot));
            if model.remove(&slot) {
                few = few.without(Slot(slot));
            } else if model.len() < FEW {
                model.insert(slot);
                few = few.with(Slot(slot)).unwrap_or(Few::MANY);
            } else {
                prop_assert_eq!(few.with(Slot(slot)), None);
            }
            prop_assert_eq!(&few.iter().map(|slot| slot.0).collect::<BTreeSet<_>>(), &model);
            prop_assert_eq!(few.iter().count(), model.len());
        }
    }

    #[test]
    fn bits_are_a_set(steps in prop::collection::vec(slot(), 1..100)) {
        let mut model = BTreeSet::new();
        let mut bits = Bits::default();
        for slot in steps {
            prop_assert_eq!(bits.contains(Slot(slot)), model.contains(&slot));
            if model.insert(slot) {
                bits.insert(Slot(slot));
            } else {
                model.remove(&slot);
                bits.remove(Slot(slot));
            }
            prop_assert!(bits.iter().map(|slot| slot.0).eq(model.iter().copied()));
            prop_assert_eq!((bits.count(), bits.is_empty()), (model.len(), model.is_empty()));
        }
    }

    #[test]
    fn those_who_own_and_the_rest_are_the_whole(
        whole in prop::collection::btree_set(slot(), 0..40),
        owners in prop::collection::btree_set(slot(), 0..40),
    ) {
        let bits: Bits = whole.iter().copied().map(Slot).collect();
        let many: Bits = owners.iter().copied().map(Slot).collect();
        let first: BTreeSet<u16> = owners.iter().copied().take(FEW).collect();
        let few: Few = first.iter().copied().map(Slot).collect();
        for (view, owners) in [(Owners::Many(&many), &owners), (Owners::Few(few), &first)] {
            let both = bits.who_own(view);
            let mut rest = bits.clone();
            rest.subtract(&both);
            let slots = |bits: &Bits| bits.iter().map(|slot| slot.0).collect::<BTreeSet<_>>();
            prop_assert_eq!(slots(&both), &whole & owners);
            prop_assert_eq!(slots(&rest), &whole - owners);
        }
    }
}
