//! The Linux bridges that a model takes for granted. They are the host's own, which Penstock does not make: a board has none but these, and
//! is given them in their place.

use std::{collections::BTreeSet, time::Duration};

use penstock_host::{Command, Place};
use penstock_model::InterfaceName;

use super::Board;
use crate::error::BoardError;

/// How long they may take.
const MAKING: Duration = Duration::from_secs(60);

/// Makes the bridges whose names it is given, where they are not there.
const MAKE: &str = "for i in \"$@\"; do [ -e \"/sys/class/net/$i\" ] || ip link add name \"$i\" type bridge || exit; \
     ip link set dev \"$i\" up || exit; done";

impl Board {
    /// Makes bridges, which are made again when the board is reset.
    ///
    /// # Errors
    ///
    /// [`BoardError::Bridges`] when one is not made, [`BoardError::File`] when they cannot be written down.
    pub fn make_bridges(&mut self, names: BTreeSet<InterfaceName>) -> Result<(), BoardError> {
        self.kept.bridges = names;
        self.kept.write(&self.directory)?;
        self.make_bridges_again()
    }

    /// Those that it has been given once.
    pub(super) fn make_bridges_again(&self) -> Result<(), BoardError> {
        if self.kept.bridges.is_empty() {
            return Ok(());
        }
        let names = self.kept.bridges.iter().map(InterfaceName::as_str);
        let make = Command::new("sh").args(["-c", MAKE, "sh"]).args(names).deadline(MAKING);
        let made = self.run(&make).map_err(|error| penstock_host::chain(&error));
        let made = made.and_then(|output| output.succeeded().map_err(|error| penstock_host::chain(&error)));
        made.map(drop).map_err(|why| BoardError::Bridges { why })
    }
}
