//! The plugin's sockets: made anew at each start, for root alone, and removed at the end.

use std::path::{Path, PathBuf};

use penstock_host::files;
use tokio::{net::UnixListener, sync::watch};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{service::Routes, transport::Server};

use super::ServeError;

/// A socket that listens, removed when it is dropped.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    listener: Option<UnixListener>,
}

impl Socket {
    /// Listens on `path`; what an earlier agent has left there is removed.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn bind(path: PathBuf) -> Result<Socket, ServeError> {
        files::remove_file(&path)?;
        let listener =
            UnixListener::bind(&path).map_err(|source| ServeError::Listen { path: path.clone(), source })?;
        files::set_mode(&path, 0o600)?;
        Ok(Socket { path, listener: Some(listener) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Serves these services until `shutdown` says true; calls in flight are finished.
    ///
    /// # Errors
    ///
    /// When the server ends by itself.
    pub async fn serve(
        mut self,
        routes: Routes,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<(), ServeError> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let ended = async move {
            // A sender that is gone says that everything ends.
            let _ = shutdown.wait_for(|over| *over).await;
        };
        Server::builder()
            .add_routes(routes)
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), ended)
            .await
            .map_err(|source| ServeError::Server { path: self.path.clone(), source })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The next agent removes it too.
        let _ = files::remove_file(&self.path);
    }
}
