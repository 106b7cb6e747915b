//! Requests at a Kubernetes API server through the socket of `kubectl proxy`. A process of kubectl for each takes a third of a second of
//! processor time, which tests that wait for something spend over and over.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use serde_json::Value;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The socket on which `kubectl proxy` listens.
#[derive(Clone, Debug)]
pub struct ApiSocket(pub PathBuf);

/// What an API server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiAnswer {
    /// HTTP's status code.
    pub status: u16,
    /// The body.
    pub text: String,
}

impl ApiAnswer {
    /// Whether the request was carried out.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl ApiSocket {
    /// Makes a request, with a body of this content type if there is one.
    ///
    /// # Errors
    ///
    /// When the proxy does not answer, or not in HTTP.
    pub fn request(&self, method: &str, path: &str, body: Option<(&str, &Value)>) -> io::Result<ApiAnswer> {
        let mut stream = UnixStream::connect(&self.0)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // HTTP/1.0 ends an answer where the connection ends, and needs no more of a client than this.
        let mut request = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n");
        let body = body.map(|(kind, body)| (kind, body.to_string()));
        if let Some((kind, body)) = &body {
            request += &format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        }
        request += "\r\n";
        request += body.as_ref().map_or("", |(_, body)| body);
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, text) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok(ApiAnswer { status: status.ok_or(io::ErrorKind::InvalidData)?, text: text.to_owned() })
    }

    /// The object at a path of the API; `None` when there is none, or the API server is away.
    pub fn find(&self, path: &str) -> Option<Value> {
        let answer = self.request("GET", path, None).ok().filter(ApiAnswer::is_success)?;
        serde_json::from_str(&answer.text).ok()
    }

    /// Makes a request that has to be carried out.
    ///
    /// # Panics
    ///
    /// When it is not.
    #[track_caller]
    pub fn must(&self, method: &str, path: &str, body: Option<(&str, &Value)>) -> String {
        match self.request(method, path, body) {
            Ok(answer) if answer.is_success() => answer.text,
            other => panic!("{method} {path}: {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use serde_json::json;

    use super::*;

    /// A server that says this once, and returns what it was asked.
    fn asked(answer: &'static str, ask: impl FnOnce(&ApiSocket)) -> String {
        let directory = tempfile::tempdir().unwrap();
        let socket = ApiSocket(directory.path().join("socket"));
        let listener = UnixListener::bind(&socket.0).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        ask(&socket);
        server.join().unwrap()
    }

    #[test]
    fn an_object_is_read_and_what_is_not_there_is_none() {
        let request = asked("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\":1}", |socket| {
            assert_eq!(socket.find("/api/v1/nodes/a"), Some(json!({"a": 1})));
        });
        assert_eq!(request, "GET /api/v1/nodes/a HTTP/1.0\r\nHost: localhost\r\n\r\n");
        asked("HTTP/1.0 404 Not Found\r\n\r\n{\"kind\":\"Status\"}", |socket| {
            assert_eq!(socket.find("/a"), None)
        });
        asked("HTTP/1.0", |socket| assert_eq!(socket.find("/a"), None));
        assert_eq!(ApiSocket("/nowhere".into()).find("/a"), None);
    }

    #[test]
    fn a_body_has_its_type_and_length() {
        let request = asked("HTTP/1.0 201 Created\r\n\r\n", |socket| {
            socket.must("POST", "/a", Some(("application/json", &json!({"b": 2}))));
        });
        assert!(
            request.ends_with("Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"b\":2}"),
            "{request}"
        );
    }
}
