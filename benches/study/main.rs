//! Which rules are best where: `cargo bench --bench study -- [TRACE]`, in virtual time.
//!
//! Every rule is compared with every other over the same arrivals, in the scenes of `scenes`, each with
//! its own best settings there. Prints Markdown and draws `benches/study.svg`; the same seeds give the
//! same figures. TRACE is a Mooncake trace (the conversation trace of FAST'25); without it, generators
//! alone are compared. A scene that stands out can be run again by the command printed with it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod picture;
mod rules;
mod scenes;
mod tables;

use scenes::{Played, Scene, Traffic};
use std::path::PathBuf;
use std::time::Instant;

const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/study.svg");

fn main() {
    // `cargo bench` adds options of its own.
    let trace = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let traffic = Traffic::all(trace.map(PathBuf::from).as_deref());
    let scenes = Scene::all(&traffic);
    let begun = Instant::now();
    let mut played: Vec<Played> = Vec::with_capacity(scenes.len());
    for scene in scenes {
        eprint!("\r{} of {} scenes, {:.0?} ", played.len() + 1, played.capacity(), begun.elapsed());
        played.push(scene.play(&traffic));
    }
    eprintln!();
    print!("{}", tables::all(&traffic, &played));
    std::fs::write(PICTURE, picture::svg(&traffic, &played)).unwrap();
}
