//! What is to be measured.

/// Rows that there are.
pub const ALL: &[(&str, &str)] = &[
    ("64", "64 B frames between two ports"),
    ("1518", "1,518 B frames, and the copy limit beside them"),
    ("testpmd", "frames of both sizes between guests of dpdk-testpmd"),
    ("segments", "segments of TCP of 64 KiB between two ports"),
    ("vms", "TCP between two emulated VMs; needs `make image`"),
    ("latency", "99th percentile of the way at half load"),
    ("workers", "64 B frames through one worker and through two"),
    ("ports", "64 B frames between two of 256 ports"),
    ("memory", "memory for each idle port"),
    ("idle", "CPU that idle ports take"),
];
/// Pairs of runs, without another wish.
const PAIRS: usize = 9;

/// What was asked for.
pub struct Choice {
    rows: Vec<String>,
    /// Runs of ours, each beside one of the peer's.
    pub pairs: usize,
}

impl Choice {
    /// Reads the program's arguments. Cargo adds some of its own, which begin with a dash.
    pub fn read(arguments: impl Iterator<Item = String>) -> Result<Choice, String> {
        let mut choice = Choice { rows: Vec::new(), pairs: PAIRS };
        for argument in arguments.filter(|argument| !argument.starts_with('-')) {
            match argument.split_once('=') {
                Some(("rows", rows)) => {
                    choice.rows.extend(rows.split(',').filter(|row| !row.is_empty()).map(str::to_owned));
                }
                Some(("pairs", pairs)) => {
                    choice.pairs =
                        pairs.parse().map_err(|_| format!("pairs={pairs} is not a number of pairs"))?;
                }
                _ => {
                    return Err(format!(
                        "{argument}: there are rows=ROW,ROW (rows=help tells which) and pairs=NUMBER"
                    ));
                }
            }
        }
        let known = |row: &String| ALL.iter().any(|(name, _)| name == row);
        if let Some(row) = choice.rows.iter().find(|row| !known(row)) {
            let all: Vec<String> = ALL.iter().map(|(name, what)| format!("  {name}: {what}")).collect();
            return Err(format!("there is no row {row}; there are\n{}", all.join("\n")));
        }
        if choice.pairs == 0 {
            return Err("pairs=0 measures nothing".to_owned());
        }
        Ok(choice)
    }

    /// Whether `row` is to be measured.
    pub fn wants(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|wanted| wanted == row)
    }
}
