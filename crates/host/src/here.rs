//! This host as a place.

use crate::{Command, InterfaceReport, Netlink, Output, Place, PlaceError, Root, files};

/// This host: the machine and the namespaces that Penstock runs in.
#[derive(Clone, Debug, Default)]
pub struct Here {
    root: Root,
}

impl Here {
    /// This host with its files under `root`. Under another root than `/` only files can be read: a recorded tree has
    /// no kernel to ask.
    pub fn new(root: Root) -> Here {
        Here { root }
    }

    /// Where its files are.
    pub fn root(&self) -> &Root {
        &self.root
    }

    fn needs_kernel(&self) -> Result<(), PlaceError> {
        if self.root.is_system() {
            return Ok(());
        }
        Err(PlaceError::Gone {
            place: self.describe(),
            why: format!("the tree under {} has no kernel to ask", self.root.path("/").display()),
        })
    }
}

impl Place for Here {
    fn describe(&self) -> String {
        "on the host".to_owned()
    }

    fn run(&self, command: &Command) -> Result<Output, PlaceError> {
        self.needs_kernel()?;
        command.run().map_err(|source| PlaceError::Process { place: self.describe(), source })
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, PlaceError> {
        match files::read_at_most(self.root.path(path), limit) {
            Ok((bytes, _)) => Ok(bytes),
            Err(error) => Err(PlaceError::File {
                place: self.describe(),
                path: path.to_owned(),
                why: error.source.to_string(),
            }),
        }
    }

    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        self.needs_kernel()?;
        Netlink::open()
            .and_then(|mut netlink| netlink.interfaces())
            .map_err(|source| PlaceError::Interfaces { place: self.describe(), source })
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        Ok(None)
    }
}
