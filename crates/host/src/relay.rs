//! One connection to this machine's loopback, carried by the standard input and output of this process.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    thread,
};

/// Bytes that are carried at once.
const CHUNK: usize = 64 << 10;

/// Connects to the TCP port `port` of 127.0.0.1 and carries bytes between it and this process' standard input, which must be a socket, as a
/// program started with a socket as both its standard input and output has it. Ends when the port's side has closed, or the other side is
/// gone; the end of one direction alone is passed on.
///
/// # Errors
///
/// When nobody listens at the port, standard input is no descriptor, or there is no thread to be had.
pub fn to_loopback(port: u16) -> io::Result<()> {
    let near = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    carry(near, TcpStream::connect((Ipv4Addr::LOCALHOST, port))?)
}

fn carry(near: UnixStream, far: TcpStream) -> io::Result<()> {
    far.set_nodelay(true)?;
    let (mut from_near, mut to_far) = (near.try_clone()?, far.try_clone()?);
    thread::Builder::new().spawn(move || {
        let how = match copy(&mut from_near, &mut to_far) {
            Ok(()) => Shutdown::Write,
            Err(_) => Shutdown::Both,
        };
        let _ = to_far.shutdown(how);
    })?;
    let (mut far, mut near) = (far, near);
    // Whoever is gone is no failure: connections end.
    let _ = copy(&mut far, &mut near);
    let _ = near.shutdown(Shutdown::Both);
    Ok(())
}

/// Passes on what comes as soon as it is there, up to the end.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn bytes_pass_both_ways_without_a_newline_and_an_end_is_passed_on() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let (mut client, near) = UnixStream::pair().unwrap();
        let carrier = thread::spawn(move || carry(near, far));
        let mut buffer = [0; 5];
        client.write_all(b"hello").unwrap();
        server.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"hello");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut buffer).unwrap(), 0, "the end of one direction");
        server.write_all(b"world").unwrap();
        client.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"world");
        drop(server);
        assert_eq!(client.read(&mut buffer).unwrap(), 0);
        carrier.join().unwrap().unwrap();
    }
}
