#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod dispatch;
mod engines;
mod names;
mod succession;
mod support;
mod trust;
