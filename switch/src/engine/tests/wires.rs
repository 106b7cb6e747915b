//! Ports that are no guests, and what comes with their frames.

use std::{
    io::{IoSlice, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use nix::{
    sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair},
    unistd::write,
};

use super::*;
use crate::{channel::tests::slow_to_close, device::leave, passed::PassedFiles};

const KNOWS: Negotiated =
    Negotiated { mergeable: true, checksum: true, tcp4: true, tcp6: true, udp: true, ecn: true, header: 12 };

/// A guest, and a port that leads elsewhere; the other end of its wire.
fn joined(kind: SockType, make: impl FnOnce(OwnedFd) -> Wire) -> (Engine, Guest, OwnedFd) {
    let (end, far) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_NONBLOCK).unwrap();
    let outside = Settings { default: true, spoofchk: false, ..settings(9) };
    let (mut engine, mut guests) = rig(false, vec![settings(0)]);
    engine.set_port(1, Some(Box::new(Port::new(Arc::new(outside)))));
    engine.set_wire(1, Some((make(end), KNOWS)));
    (engine, guests.remove(0), far)
}

#[test]
fn who_passes_descriptors_with_its_frames_makes_the_worker_close_none() {
    for kind in [SockType::SeqPacket, SockType::Stream] {
        for urgent in [false, true] {
            if urgent && kind == SockType::SeqPacket {
                continue;
            }
            let brought = PassedFiles::default();
            let (mut engine, mut guest, far) = joined(kind, |end| {
                let wire = if kind == SockType::Stream { Wire::with_lengths(end) } else { Wire::new(end) };
                wire.taking(brought.clone())
            });
            let front = if kind == SockType::Stream { 60_u32.to_be_bytes().to_vec() } else { vec![0; 12] };
            let whole = [front, frame(0, 7, None, 46)].concat();
            write(&far, &whole).unwrap();
            engine.round(0);
            assert_eq!(guest.frames().len(), 1);
            let (slow, _theirs, _peer) = slow_to_close(6);
            let rights = [slow.as_raw_fd()];
            let flags = if urgent { MsgFlags::MSG_OOB } else { MsgFlags::empty() };
            let bytes = if urgent { &whole[..1] } else { &whole };
            sendmsg::<()>(
                far.as_raw_fd(),
                &[IoSlice::new(bytes)],
                &[ControlMessage::ScmRights(&rights)],
                flags,
                None,
            )
            .unwrap();
            // Nobody else has it any more.
            drop(slow);
            let began = Instant::now();
            for _ in 0..40 {
                engine.round(0);
            }
            let took = began.elapsed();
            assert!(took < Duration::from_secs(2), "{kind:?}: the worker stands for {took:?}");
            assert!(guest.frames().is_empty(), "what brings descriptors is no frame");
            assert_eq!(recv(far.as_raw_fd(), &mut [0; 64], MsgFlags::MSG_DONTWAIT), Ok(0), "{kind:?}");
            let files = brought.take();
            assert_eq!((files.len(), leave(files)), (1, 1));
            // Nothing more is taken of it.
            drop(engine);
        }
    }
}

#[test]
fn empty_frames_of_a_stream_are_taken_a_turn_at_a_time() {
    let (mut engine, mut guest, far) = joined(SockType::Stream, Wire::with_lengths);
    let mut far = UnixStream::from(far);
    far.write_all(&[0; 4 * 10_000]).unwrap();
    assert_eq!(engine.round(0).frames, TURN);
    // What comes behind them comes.
    let whole = frame(0, 7, None, 46);
    far.write_all(&[&(whole.len() as u32).to_be_bytes()[..], &whole].concat()).unwrap();
    let mut frames = TURN;
    loop {
        match engine.round(0).frames {
            0 => break,
            some => frames += some,
        }
    }
    assert_eq!(frames, 10_001);
    assert_eq!(guest.frames(), [whole]);
    assert_eq!(dropped(&engine, 1, Dropped::BadHeader), 10_000);
    assert!(far.as_fd().as_raw_fd() > 0);
}

#[test]
fn that_a_checksum_is_right_is_believed_of_wires_and_told_to_who_may_know() {
    const VALID: [u8; 12] = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (checksum, told) in [(false, 0), (true, 2)] {
        let (mut engine, mut guest, far) = joined(SockType::SeqPacket, Wire::new);
        engine.set_port(2, Some(Box::new(Port::new(Arc::new(settings(2))))));
        let knows = Negotiated { checksum, ..KNOWS };
        let mut other = Guest::plug(&mut engine, 2, false, 64, 2048, knows);
        // A guest's word is not taken.
        guest.send_in(VALID, &frame(2, 0, None, 60), &[12]);
        guest.send_in(VALID, &frame(7, 0, None, 60), &[12]);
        engine.round(0);
        assert_eq!(other.got(), [([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], frame(2, 0, None, 60))]);
        let mut room = [0; 200];
        let len = recv(far.as_raw_fd(), &mut room, MsgFlags::empty()).unwrap();
        assert_eq!((room[0], len), (0, 12 + 74));
        // A wire's is, and told where the driver has asked for it.
        write(&far, &[&VALID[..], &frame(2, 7, None, 60)].concat()).unwrap();
        engine.round(0);
        let got = other.got();
        assert_eq!((got.len(), got[0].0[0]), (1, told));
        // So is what was summed here.
        let mut asked = [0; 12];
        (asked[0], asked[6], asked[8]) = (1, 14, 6);
        guest.send_in(asked, &frame(2, 0, None, 60), &[12]);
        engine.round(0);
        let header = other.got()[0].0;
        assert_eq!(header[0], if checksum { 1 } else { 0 });
    }
}
