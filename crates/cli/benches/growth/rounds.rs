//! All commands at all sizes, in rounds: whatever else the machine does in a while concerns all sizes alike.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::{
    choice::Axis,
    curve::{Curve, Point, Quantity},
    process, settled, verified,
};

/// What the bench does itself.
const OWN: [&str; 2] = [settled::PLAN, verified::VERIFY];

/// A command line of `penstock`, or one word of [`OWN`].
pub struct Subject {
    /// What it is called.
    pub name: &'static str,
    /// The arguments, in the directory of a size.
    pub words: &'static [&'static str],
}

/// A size with the directory that has its files.
pub struct Sized {
    pub size: u32,
    pub directory: PathBuf,
}

/// Runs each of `subjects` `repeats` times at each size.
pub fn measure(
    axis: Axis,
    program: &Path,
    subjects: &[Subject],
    sizes: &[Sized],
    repeats: usize,
) -> Vec<Curve> {
    let curve = |subject: &Subject, quantity| Curve {
        axis,
        subject: subject.name.to_owned(),
        quantity,
        points: sizes.iter().map(|Sized { size, .. }| Point { size: *size, samples: Vec::new() }).collect(),
    };
    let mut curves: Vec<Curve> = Quantity::ALL
        .iter()
        .flat_map(|quantity| subjects.iter().map(|subject| curve(subject, *quantity)))
        .collect();
    let bench = env::current_exe().expect("this program's path");
    for round in 1..=repeats {
        eprintln!("  {round} of {repeats}");
        for (place, Sized { directory, .. }) in sizes.iter().enumerate() {
            for (number, subject) in subjects.iter().enumerate() {
                // A run may want a directory of its own.
                let _ = fs::remove_dir_all(directory.join("made"));
                let program = if OWN.iter().any(|word| subject.words == [*word]) { &bench } else { program };
                let used = process::measure(directory, program, subject.words);
                curves[number].points[place].samples.push(used.cpu);
                curves[subjects.len() + number].points[place].samples.push(used.memory);
            }
        }
    }
    curves
}
