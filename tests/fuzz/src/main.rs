//! One target of `targets.rs`, named by the variable `TARGET`, behind libFuzzer.

#![no_main]
#![allow(clippy::expect_used, clippy::panic)]

mod targets;

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("TARGET").expect("TARGET names a target");
    let found = targets::ALL.iter().find(|(known, _)| *known == name);
    found
        .unwrap_or_else(|| panic!("no target `{name}`: {:?}", targets::ALL.map(|(name, _)| name)))
        .1
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
