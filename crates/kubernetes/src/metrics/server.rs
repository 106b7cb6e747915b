//! HTTP for scrapers, on a thread of its own, so that whoever floods it takes nothing from the agent but CPU time, of which it gets little:
//! connections, their pace, their time and the size of a request are bounded, and what is told is gathered at most every few seconds,
//! however often it is asked for.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use thiserror::Error;
use tokio::{
    net::TcpStream,
    sync::{Mutex, Semaphore},
    task, time,
};

use crate::{log::LastingTrouble, pace::Bucket};

/// What was gathered is told for so long.
const FRESH: Duration = Duration::from_secs(5);

/// So many connections at a time; the others wait in the kernel's queue, which is bounded too.
const CONNECTIONS: usize = 16;

/// So many connections at once, and then one each [`EVERY`].
const BURST: u32 = 40;

/// One connection each so long.
const EVERY: Duration = Duration::from_millis(50);

/// A request has to be there within this time.
const REQUEST: Duration = Duration::from_secs(5);

/// A connection lasts so long at most: gathering takes up to 8 s, and the reader has the rest.
const CONNECTION: Duration = Duration::from_secs(20);

/// A request's head has so many bytes at most; hyper takes no lower bound.
const HEAD: usize = 8 << 10;

/// A request has so many header fields at most.
const FIELDS: usize = 64;

/// The media type of OpenMetrics 1.0.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why metrics cannot be served.
#[derive(Debug, Error)]
#[error(
    "cannot serve metrics on {address}: give --metrics an address of this machine and a port that is free"
)]
pub struct MetricsError {
    address: SocketAddr,
    source: io::Error,
}

/// A socket that listens for scrapers.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl MetricsServer {
    /// Listens.
    ///
    /// # Errors
    ///
    /// The address is none of this machine's, or the port is taken.
    pub fn bind(address: SocketAddr) -> Result<MetricsServer, MetricsError> {
        let failed = |source| MetricsError { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(MetricsServer { listener, address })
    }

    /// Where it listens, the port as the kernel chose it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves what `gather` gives, until the process ends. `gather` may block; it is never called twice at a time.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn serve(self, gather: impl FnMut() -> String + Send + 'static) -> Result<(), MetricsError> {
        let address = self.address;
        let failed = |source| MetricsError { address, source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener).map_err(failed)?
        };
        let source = Arc::new(Source { gather: Mutex::new(Gather { gather: Box::new(gather), kept: None }) });
        let accept = move || runtime.block_on(accept(listener, source));
        thread::Builder::new().name("metrics".to_owned()).spawn(accept).map_err(failed)?;
        Ok(())
    }
}

/// Takes connections, one after the other, and no more than are allowed at a time.
async fn accept(listener: tokio::net::TcpListener, source: Arc<Source>) {
    let allowed = Arc::new(Semaphore::new(CONNECTIONS));
    let mut bucket = Bucket::new(BURST, EVERY, Instant::now());
    let mut trouble = LastingTrouble::new("take connections for metrics");
    loop {
        let Ok(permit) = allowed.clone().acquire_owned().await else { return };
        while let Err(wait) = bucket.take(Instant::now()) {
            time::sleep(wait).await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                trouble.end();
                let source = source.clone();
                task::spawn(async move {
                    // What it ends with is its peer's trouble.
                    let _ = time::timeout(CONNECTION, converse(stream, source)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                trouble.meet(&error);
                time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// One request and its answer.
async fn converse(stream: TcpStream, source: Arc<Source>) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let source = source.clone();
        async move { Ok::<_, Infallible>(answer(&request, source).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST)
        .keep_alive(false)
        .max_buf_size(HEAD)
        .max_headers(FIELDS)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn answer(request: &Request<Incoming>, source: Arc<Source>) -> Response<Full<Bytes>> {
    let says = |status, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    };
    if request.uri().path() != "/metrics" {
        return says(StatusCode::NOT_FOUND, "there is /metrics, and nothing else\n");
    }
    // hyper leaves the body out where only the head was asked for.
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = says(StatusCode::METHOD_NOT_ALLOWED, "metrics can be read by GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let Some(text) = source.text().await else {
        return says(StatusCode::INTERNAL_SERVER_ERROR, "metrics could not be gathered\n");
    };
    let mut response = Response::new(Full::new(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
    response
}

/// What is told, and since when it is known.
struct Source {
    gather: Mutex<Gather>,
}

struct Gather {
    gather: Box<dyn FnMut() -> String + Send>,
    kept: Option<(Instant, Bytes)>,
}

impl Source {
    /// What is told now; `None` when gathering it panicked.
    async fn text(self: Arc<Source>) -> Option<Bytes> {
        // On a task of its own: when whoever asked hangs up, it comes to its end all the same, and is not begun a second time beside.
        let gathered = task::spawn(async move {
            let gather = Arc::clone(&self);
            {
                let held = self.gather.lock().await;
                if let Some(text) = held.fresh() {
                    return Some(text);
                }
            }
            let gathered = task::spawn_blocking(move || {
                let mut held = gather.gather.blocking_lock();
                // Another one may have been quicker.
                if let Some(text) = held.fresh() {
                    return text;
                }
                let text = Bytes::from((held.gather)());
                held.kept = Some((Instant::now(), text.clone()));
                text
            });
            gathered.await.ok()
        });
        gathered.await.ok().flatten()
    }
}

impl Gather {
    fn fresh(&self) -> Option<Bytes> {
        self.kept.as_ref().filter(|(at, _)| at.elapsed() < FRESH).map(|(_, text)| text.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// How long something is waited for that takes milliseconds.
    const SOON: Duration = Duration::from_secs(60);

    struct Served {
        address: SocketAddr,
        gathered: Arc<AtomicUsize>,
    }

    /// Serves a text of so many bytes.
    fn serve(bytes: usize) -> Served {
        let gathered = Arc::new(AtomicUsize::new(0));
        let server = MetricsServer::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = server.address();
        let count = gathered.clone();
        let gather = move || {
            count.fetch_add(1, Ordering::Relaxed);
            "x".repeat(bytes) + "\n# EOF\n"
        };
        server.serve(gather).unwrap();
        Served { address, gathered }
    }

    impl Served {
        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(SOON)).unwrap();
            stream
        }

        /// What comes back for these bytes, until the other end closes.
        fn ask(&self, request: &[u8]) -> String {
            let mut stream = self.connect();
            // It may hang up before it has read all.
            let _ = stream.write_all(request);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        }

        fn get(&self) -> String {
            self.ask(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        }
    }

    #[test]
    fn it_is_gathered_once_however_often_it_is_scraped() {
        let served = serve(10);
        let first = served.get();
        assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && first.ends_with("\n# EOF\n"), "{first}");
        assert!(first.contains(&format!("content-type: {OPEN_METRICS}\r\n")), "{first}");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert!(served.get().ends_with("\n# EOF\n")));
            }
        });
        // Nine scrapes take far less than the time for which it is fresh, but on a machine that stood still meanwhile.
        let gathered = served.gathered.load(Ordering::Relaxed);
        assert!(gathered < 9, "{gathered}");
        let head = served.ask(b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.contains("200 OK") && !head.contains("EOF"), "{head}");
    }

    #[test]
    fn what_is_no_request_for_metrics_is_answered_shortly() {
        let served = serve(10);
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(64 << 10));
        let fields = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1000));
        for (request, words) in [
            (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], "404 Not Found"),
            (b"GET /metrics/../x HTTP/1.1\r\nHost: a\r\n\r\n", "404 Not Found"),
            (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400 Bad Request"),
            (long.as_bytes(), ""),
            (fields.as_bytes(), "431 Request Header Fields Too Large"),
        ] {
            let answer = served.ask(request);
            assert!(answer.contains(words) && !answer.contains("200 OK"), "{words}: {answer}");
        }
        assert_eq!(served.gathered.load(Ordering::Relaxed), 0);
        assert!(served.get().ends_with("\n# EOF\n"));
    }

    #[test]
    fn who_never_asks_or_never_reads_is_hung_up_on() {
        let served = serve(32 << 20);
        // As many as there may be at a time: half of them say nothing, half of them read nothing.
        let mut silent: Vec<TcpStream> = (0..CONNECTIONS).map(|_| served.connect()).collect();
        for stream in silent.iter_mut().skip(CONNECTIONS / 2) {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        }
        // The next one waits until the first of them has been hung up on.
        let answer = served.get();
        assert!(answer.ends_with("\n# EOF\n") && answer.len() > 32 << 20, "{}", answer.len());
        for stream in &mut silent[..CONNECTIONS / 2] {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            assert!(!rest.starts_with(b"HTTP/1.1 200"), "it asked for nothing");
        }
    }
}
