//! A board as a place: commands, files and interfaces inside it, over SSH.

use penstock_host::{Command, InterfaceReport, Output, Place, PlaceError};

use crate::{board::Board, interfaces};

/// The status of `ssh` itself failing.
const SSH_FAILED: i32 = 255;

impl Place for Board {
    fn describe(&self) -> String {
        "inside the board".to_owned()
    }

    fn run(&self, command: &Command) -> Result<Output, PlaceError> {
        let mut output = self
            .remote(command)
            .run()
            .map_err(|source| PlaceError::Process { place: self.describe(), source })?;
        let said = output.errors();
        let connection =
            ["ssh: ", "Connection ", "mux_client", "Control socket", "kex_exchange", "client_loop"];
        if output.status.code() == Some(SSH_FAILED) && connection.iter().any(|sign| said.starts_with(sign)) {
            return Err(PlaceError::Gone { place: "the board".to_owned(), why: said.trim().to_owned() });
        }
        // What was asked for, not how it got there.
        output.command = command.to_string();
        Ok(output)
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, PlaceError> {
        let command = Command::new("head").args(["-c", &limit.to_string(), "--", path]);
        let output = self.run(&command)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(PlaceError::File {
            place: self.describe(),
            path: path.to_owned(),
            why: output.errors().trim().to_owned(),
        })
    }

    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        let source = "ip -json -details address";
        let output = self.run(&Command::new("ip").args(["-json", "-details", "address"]))?;
        interfaces::read(&output.stdout).map_err(|why| PlaceError::File {
            place: self.describe(),
            path: source.to_owned(),
            why,
        })
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        Err(PlaceError::Gone {
            place: "the board's network namespace".to_owned(),
            why: "it is under another kernel".to_owned(),
        })
    }
}
