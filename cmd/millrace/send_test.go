package main

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/app/replay"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// listen opens a packet socket for one EtherType on eth0 of a namespace.
func listen(t *testing.T, ns *testnet.Namespace, ether uint16) (fd int) {
	t.Helper()
	err := ns.Do(func() (err error) {
		swapped := ether<<8 | ether>>8
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(swapped))
		if err != nil {
			return err
		}
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// numbers reads packets until none comes for a while, and returns what stands behind their headers.
func numbers(t *testing.T, fd int) (got []uint16) {
	t.Helper()
	tv := unix.NsecToTimeval(int64(500 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return got
		}
		if n >= 16 {
			got = append(got, binary.BigEndian.Uint16(buf[14:]))
		}
	}
}

func TestReplayReportsWhatADeviceRefuses(t *testing.T) {
	t.Parallel()
	short, long := make([]byte, 60), make([]byte, 14+3000)
	for _, b := range [][]byte{short, long} {
		b[0], b[6], b[12], b[13] = 2, 2, 0x88, 0xb5
	}
	for _, driver := range []string{"afpacket", "afxdp"} {
		t.Run(driver, func(t *testing.T) {
			w := newWires(t, "refuse-"+driver)
			for _, c := range []struct {
				file            string
				sent, sentBytes uint64
			}{
				{record(t, "long.pcap", long, long), 0, 0},
				{record(t, "both.pcap", short, long, short), 2, 120},
			} {
				cmd := program("replay", "--json", "--to", "a", "--driver", driver, c.file)
				var out, errs buffer
				cmd.Stdout, cmd.Stderr = &out, &errs
				if err := w.middle.Start(cmd); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait()
				var rep replay.Report
				decode(t, out.String(), &rep)
				o := rep.Output
				if o.Packets != c.sent || o.Bytes != c.sentBytes || o.TxInvalid != rep.Total.Packets-c.sent || (o.BitRate > 0) != (c.sent > 0) {
					t.Errorf("%+v", o)
				}
				if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(errs.String(), "mtu 3000") {
					t.Errorf("exit code %d: %s", code, &errs)
				}
			}
		})
	}
}

func TestReplaySendsEveryPacketToADevice(t *testing.T) {
	t.Parallel()
	const packets = 5000
	const ether = 0x88b5 // IEEE 802: local experimental
	frames := make([][]byte, packets)
	for i := range frames {
		frames[i] = append(make([]byte, 12), ether>>8, ether&0xff, byte(i>>8), byte(i))
		frames[i] = append(frames[i], make([]byte, 44)...)
		frames[i][0], frames[i][6] = 0x02, 0x02
	}
	file := record(t, "n.pcap", frames...)
	for _, driver := range []string{"afpacket", "afxdp"} {
		t.Run(driver, func(t *testing.T) {
			w := newWires(t, "to-"+driver)
			fd := listen(t, w.client, ether)
			cmd := program("replay", "--json", "--to", "a", "--driver", driver, "--rate", "100kpps", file)
			var out, errs buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := w.middle.Start(cmd); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v: %s", err, &errs)
			}
			var rep replay.Report
			decode(t, out.String(), &rep)
			if rep.Total.Passed != packets || rep.Output.Packets != packets || rep.Output.Driver != driver || rep.Output.TxInvalid != 0 {
				t.Errorf("passed %d of %d, output %+v", rep.Total.Passed, packets, rep.Output)
			}
			got := numbers(t, fd)
			if len(got) != packets {
				t.Fatalf("%d packets of %d arrived", len(got), packets)
			}
			for i, n := range got {
				if int(n) != i {
					t.Fatalf("packet %d is number %d", i, n)
				}
			}
		})
	}
}
