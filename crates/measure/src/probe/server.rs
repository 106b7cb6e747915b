//! The reflector: answers each request with the same bytes, for a time.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use penstock_host::datagrams::Datagrams;

use super::packet::{MOST, Packet};

/// Answers requests that come to this address until `duration` is over. What is no request is not answered, its own answers
/// included, so that two reflectors never keep each other busy; and an answer is never longer than its request.
///
/// # Errors
///
/// The address cannot be listened at.
pub fn reflect(bind: IpAddr, port: u16, duration: Duration) -> io::Result<()> {
    serve(&Datagrams::open(SocketAddr::new(bind, port))?, Instant::now() + duration)
}

/// The same at a socket that is there.
///
/// # Errors
///
/// The kernel's, when the socket cannot be waited for. What became of single answers ends nothing.
pub fn serve(socket: &Datagrams, until: Instant) -> io::Result<()> {
    // One more than the longest, so that a longer one is seen to be.
    let mut buffer = vec![0; MOST as usize + 1];
    while Instant::now() < until {
        match socket.receive(&mut buffer) {
            Ok(Some((length, from))) => answer(socket, &mut buffer[..length], from),
            Ok(None) => {
                socket.wait(until)?;
            }
            // What became of an earlier answer to somebody who is gone is told here, and ends nothing.
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
    Ok(())
}

fn answer(socket: &Datagrams, datagram: &mut [u8], from: SocketAddr) {
    let Some(request) = Packet::read(datagram).filter(|packet| !packet.answer) else { return };
    Packet { answer: true, ..request }.write(datagram);
    // A queue that is full, or somebody who is gone: the client counts what it misses.
    let _ = socket.send_to(datagram, from);
}
