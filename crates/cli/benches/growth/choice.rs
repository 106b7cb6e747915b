//! What is measured, and how often.

/// How often each size is measured, unless the arguments say.
const REPEATS: usize = 7;

/// A kind of size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    /// VFs of one NIC.
    Vfs,
    /// Guests, with eight VFs each.
    Guests,
    /// Steps of a plan.
    Steps,
    /// Cells of a report.
    Cells,
    /// Ports of an embedded switch.
    Ports,
}

impl Axis {
    const ALL: [Axis; 5] = [Axis::Vfs, Axis::Guests, Axis::Steps, Axis::Cells, Axis::Ports];

    /// The kind of this name.
    pub fn of(name: &str) -> Option<Axis> {
        Axis::ALL.into_iter().find(|axis| axis.name() == name)
    }

    /// Its name, as an argument and in files.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Vfs => "vfs",
            Axis::Guests => "guests",
            Axis::Steps => "steps",
            Axis::Cells => "cells",
            Axis::Ports => "ports",
        }
    }

    /// What stands below the axis.
    pub fn label(self) -> &'static str {
        match self {
            Axis::Vfs => "VFs of a NIC, dealt out to 8 containers",
            Axis::Guests => "containers with 8 VFs each",
            Axis::Steps => "steps of a plan",
            Axis::Cells => "cells of a report",
            Axis::Ports => "ports of a switch",
        }
    }

    /// The largest size.
    fn most(self) -> u32 {
        match self {
            Axis::Vfs | Axis::Cells => 4096,
            // A VF takes two steps.
            Axis::Steps => 2048,
            Axis::Guests => 512,
            Axis::Ports => 1024,
        }
    }
}

/// What was asked for.
pub struct Choice {
    /// The words that say so.
    pub words: Vec<String>,
    names: Vec<String>,
    most: u32,
    /// How often each size is measured.
    pub repeats: usize,
    /// Whether the pictures are those of the documents.
    pub docs: bool,
    /// Whether nothing is measured.
    pub kept: bool,
}

impl Choice {
    /// Reads the arguments.
    pub fn read(words: impl Iterator<Item = String>) -> Choice {
        // Cargo adds `--bench`.
        let words: Vec<String> = words.filter(|word| !word.starts_with("--")).collect();
        let (names, most, repeats) = (Vec::new(), u32::MAX, REPEATS);
        let mut choice = Choice { words: words.clone(), names, most, repeats, docs: false, kept: false };
        for word in words {
            let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("`{word}` has no number"));
            match word.split_once('=') {
                Some(("repeats", text)) => choice.repeats = number(text) as usize,
                Some(("most", text)) => choice.most = number(text),
                _ if word == "docs" => choice.docs = true,
                _ if word == "kept" => choice.kept = true,
                _ if Axis::of(&word).is_some() => choice.names.push(word),
                _ => panic!("`{word}` is nothing that can be measured"),
            }
        }
        choice
    }

    /// The kinds of size that are measured.
    pub fn axes(&self) -> impl Iterator<Item = Axis> {
        let wanted = |axis: &Axis| self.names.is_empty() || self.names.iter().any(|name| name == axis.name());
        Axis::ALL.into_iter().filter(move |axis| !self.kept && wanted(axis))
    }

    /// Whether less is measured of a kind than is told of it elsewhere.
    pub fn is_trial(&self) -> bool {
        self.most < u32::MAX || self.repeats < REPEATS
    }

    /// The sizes of one kind, each twice as large as the one before.
    pub fn sizes(&self, axis: Axis) -> Vec<u32> {
        let most = axis.most().min(self.most);
        std::iter::successors(Some(1), |size| Some(size * 2)).take_while(|size| *size <= most).collect()
    }
}
