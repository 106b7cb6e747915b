//! Reports of runs with many cells.

use std::fs;

use penstock_testkit::binary;

use super::{
    choice::{Axis, Choice},
    curve::Curve,
    rounds::{self, Sized, Subject},
    runs,
};

const SUBJECTS: [Subject; 3] = [
    Subject { name: "report", words: &["report", "run", "--output", "made"] },
    Subject { name: "report --redact", words: &["report", "run", "--redact", "--output", "made"] },
    Subject { name: "two runs compared", words: &["report", "run", "run"] },
];

/// Renders, redacts and compares runs with so many cells.
pub fn measure(choice: &Choice) -> Vec<Curve> {
    let all = tempfile::tempdir().expect("a temporary directory");
    let prepared = |size: u32| {
        let directory = all.path().join(size.to_string());
        fs::create_dir_all(directory.join("run")).expect("a directory");
        let evidence =
            serde_json::to_vec(&runs::measured::with_cells(size as usize)).expect("evidence is JSON");
        fs::write(directory.join("run/evidence.json"), evidence).expect("a file");
        Sized { size, directory }
    };
    let sizes: Vec<Sized> = choice.sizes(Axis::Cells).into_iter().map(prepared).collect();
    let program = binary::path().expect("the binary was built: `make build`");
    rounds::measure(Axis::Cells, &program, &SUBJECTS, &sizes, choice.repeats)
}
