//! Interrupts: who has them, where they may be delivered, and where they are (proc_interrupts(5), `kernel/irq/proc.c`).

use std::collections::BTreeMap;

use penstock_model::{
    Bdf,
    inventory::tuning::{Irq, Knob, Reading, Value},
};

use super::{cpu_list, reading_of};
use crate::scan::reader::Reader;

const IRQS: &str = "/proc/irq";
const FUNCTIONS: &str = "/sys/bus/pci/devices";
/// More interrupts than a machine has.
const MOST_IRQS: usize = 20_000;
/// CPUs in all sets of all interrupts together: 1000 CPUs in both sets of 4000 interrupts. A tree that somebody made up could
/// ask for all memory otherwise.
const MOST_MEMBERS: usize = 8 << 20;
/// A table of 8000 interrupts on 512 CPUs has 45 MB: each count is 11 characters.
const LONGEST_TABLE: usize = 64 << 20;
/// Counts that are not 0 in one table, as many as 8000 interrupts that came to 1000 CPUs each.
const MOST_COUNTS: usize = 8 << 20;

/// The interrupts of a machine.
#[derive(Debug, Default)]
pub(super) struct Irqs {
    pub irqs: BTreeMap<u32, Irq>,
    pub knobs: BTreeMap<Knob, Reading<Value>>,
    /// Whether the table could be read.
    pub table: Reading<()>,
}

pub(super) fn irqs(reader: &mut Reader<'_>) -> Irqs {
    let mut found = Irqs::default();
    let table = Table::read("/proc/interrupts", reader);
    match &table {
        Reading::Is(_) | Reading::Absent => {}
        Reading::Denied => reader.note("/proc/interrupts may not be read"),
        Reading::Unreadable(why) => reader.note(why),
    }
    let mut lines = Vec::new();
    found.table = table.map(|table| lines = table.lines);
    let mut of_table: BTreeMap<u32, Line> =
        lines.into_iter().filter_map(|line| Some((line.label.parse().ok()?, line))).collect();
    let mut members = 0;
    for number in reader.numbered(IRQS, "").into_iter().take(MOST_IRQS) {
        let line = of_table.remove(&number).unwrap_or_default();
        let mut irq = Irq { users: line.users, chip: line.chip, counts: line.counts, ..Irq::default() };
        if members < MOST_MEMBERS {
            irq.effective = reader.reading(&format!("{IRQS}/{number}/effective_affinity_list"), cpu_list);
            members += irq.effective.known().map_or(0, |cpus| cpus.0.len());
            let knob = Knob::IrqAffinity(number);
            let reading = reading_of(knob, reader);
            if let Reading::Is(Value::Cpus(cpus)) = &reading {
                members += cpus.0.len();
            }
            found.knobs.insert(knob, reading);
        } else {
            irq.effective = Reading::Unreadable(format!("{IRQS} has more CPUs in its masks than are read"));
        }
        found.irqs.insert(number, irq);
    }
    for (number, line) in of_table.into_iter().take(MOST_IRQS) {
        let Line { users, chip, counts, .. } = line;
        found.irqs.insert(number, Irq { users, chip, counts, ..Irq::default() });
    }
    of_functions(&mut found.irqs, reader);
    found
}

/// Finds the functions whose interrupts these are (`drivers/pci/msi/msi.c`).
fn of_functions(irqs: &mut BTreeMap<u32, Irq>, reader: &mut Reader<'_>) {
    for name in reader.list(FUNCTIONS) {
        let Ok(function) = name.parse::<Bdf>() else { continue };
        for number in reader.numbered(&format!("{FUNCTIONS}/{name}/msi_irqs"), "") {
            if let Some(irq) = irqs.get_mut(&number) {
                irq.function = Some(function);
            }
        }
    }
}

/// `/proc/interrupts` or `/proc/softirqs`, as it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Its lines that count by CPU.
    pub lines: Vec<Line>,
}

/// One line of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// What is before the colon: `35`, `LOC`, `NET_RX`.
    pub label: String,
    /// How often each CPU had it, without those that never had.
    pub counts: BTreeMap<u32, u64>,
    /// The controller: `IR-PCI-MSIX-0000:04:00.0`. Of what is no device's, the first word of what it is.
    pub chip: String,
    /// Who asked for it.
    pub users: Vec<String>,
}

impl Table {
    /// Reads the file `path`, whole or not at all.
    pub(super) fn read(path: &str, reader: &mut Reader<'_>) -> Reading<Table> {
        match reader.lines_up_to(path, LONGEST_TABLE).map(|text| Table::parse(&text)) {
            Reading::Is(Ok(table)) => Reading::Is(table),
            Reading::Is(Err(why)) => Reading::Unreadable(format!("{path}: {why}")),
            other => other.map(|_| Table::default()),
        }
    }

    /// Reads it. Lines that do not count for each CPU (`ERR`, `MIS`) are left out.
    ///
    /// # Errors
    ///
    /// In words, why this is no table of a kernel's: without a line of CPUs, or with an interrupt that has no count for each, or more
    /// than is read. Who has which interrupt is not known then.
    pub fn parse(text: &str) -> Result<Table, String> {
        let mut lines = text.lines();
        // `           CPU0       CPU1`: CPUs that are off line have no column.
        let header = lines.next().unwrap_or_default();
        let cpus: Vec<u32> = header
            .split_whitespace()
            .map_while(|word| word.strip_prefix("CPU")?.parse().ok())
            .take(super::MOST_CPUS)
            .collect();
        if cpus.is_empty() {
            return Err("its first line names no CPU".to_owned());
        }
        let (mut found, mut counts) = (Vec::new(), 0);
        for line in lines {
            if let Some(line) = parse_line(line, &cpus) {
                counts += line.counts.len();
                found.push(line);
            } else if let Some(number) = device(line) {
                return Err(format!("the line of interrupt {number} cannot be parsed"));
            }
            if found.len() > MOST_IRQS || counts > MOST_COUNTS {
                return Err("it has more interrupts than are read".to_owned());
            }
        }
        Ok(Table { lines: found })
    }
}

/// The device interrupt that a line is of.
fn device(line: &str) -> Option<u32> {
    line.split_once(':')?.0.trim().parse().ok()
}

fn parse_line(line: &str, cpus: &[u32]) -> Option<Line> {
    let (label, mut rest) = line.split_once(':')?;
    let label = label.trim();
    if label.is_empty() || label.len() > 16 || !label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return None;
    }
    let mut counts = BTreeMap::new();
    for cpu in cpus {
        rest = rest.trim_start();
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (count, after) = rest.split_at(length);
        let count: u64 = count.parse().ok()?;
        if count > 0 {
            counts.insert(*cpu, count);
        }
        rest = after;
    }
    let plain = |text: &str| text.chars().filter(|c| !c.is_control()).take(100).collect::<String>();
    let mut words = rest.split_whitespace().peekable();
    let chip = plain(words.next().unwrap_or_default());
    // Its number there, which newer kernels join with the kind, then the kind: `1-edge`, `27 Level`.
    words.next_if(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    words.next_if(|word| ["Edge", "Level", "edge", "level", "fasteoi"].contains(word));
    let users: Vec<&str> = words.collect();
    let users = users.join(" ");
    let users = users.split(", ").filter(|user| !user.is_empty()).take(64).map(plain).collect();
    Some(Line { label: label.to_owned(), counts, chip, users })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_read_as_kernels_print_them() {
        // CPU 2 is off line; Linux 6.x, an older one, Arm, and what is no device's.
        let table = Table::parse(
            "            CPU0       CPU1       CPU3\n \
             0:          9          0          0  IR-IO-APIC    2-edge      timer\n \
            16:          0          3          0  IR-IO-APIC   16-fasteoi   uhci_hcd:usb1, i915, snd hda\n \
            35:          0          0          0  IR-PCI-MSIX-0000:04:00.0    1-edge\n \
           130:          1          2          3   PCI-MSI 524288-edge      eth0-TxRx-0\n \
            27:          0          0        812     GICv3  27 Level     arch_timer\n \
           NMI:          0          0          7   Non-maskable interrupts\n \
           ERR:          0\n\
           \u{7}: 1 2 3 x\n",
        )
        .unwrap();
        let of = |label: &str| table.lines.iter().find(|line| line.label == label).unwrap().clone();
        assert_eq!(table.lines.len(), 6);
        assert_eq!(of("0").users, ["timer"]);
        assert_eq!(of("16").users, ["uhci_hcd:usb1", "i915", "snd hda"]);
        assert_eq!(of("16").counts, [(1, 3)].into());
        assert_eq!((of("35").chip.as_str(), of("35").users.len()), ("IR-PCI-MSIX-0000:04:00.0", 0));
        assert_eq!((of("130").chip.as_str(), of("130").users), ("PCI-MSI", vec!["eth0-TxRx-0".to_owned()]));
        assert_eq!((of("27").users, of("27").counts), (vec!["arch_timer".to_owned()], [(3, 812)].into()));
        assert_eq!(of("NMI").counts, [(3, 7)].into());
    }

    #[test]
    fn no_header_no_interrupts() {
        for odd in ["", "\n1: 2 3\n", "CPUx\n 1: 4 IO-APIC 1-edge a\n"] {
            assert!(Table::parse(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn a_table_with_a_device_interrupt_that_cannot_be_read_is_none() {
        // A number that fits nowhere is no count.
        for odd in ["1: 99999999999999999999999 1 x", "1: 7", "1:"] {
            let read = Table::parse(&format!("CPU0 CPU1\n{odd}\n"));
            assert_eq!(read, Err("the line of interrupt 1 cannot be parsed".to_owned()), "{odd:?}");
        }
        assert_eq!(Table::parse("CPU0 CPU1\nERR: 1\nMIS: x\n"), Ok(Table::default()));
    }
}
