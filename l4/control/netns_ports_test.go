package control_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Linux takes SYNs of the gateway in TIME-WAIT: 1000 connections share 100 source ports, and the backend closes each
// first.
func TestLinuxTakesReclaimedPorts(t *testing.T) {
	t.Parallel()
	const conns = 1000
	s, _ := layOut(t, "mr-gwport")
	s.listen(0)
	s.must(os.WriteFile(s.file, []byte(`
devices: [{name: front, driver: afxdp}, {name: back1, driver: afxdp}, {name: back2, driver: afxdp}]
snat: [198.18.2.1]
snat_ports: 40000-40099
admin: {socket: ""}
services:
  - {name: web, address: 198.18.1.1:80, backends: [{name: b1, address: 198.18.3.2:8080}]}
`), 0o644))
	s.start("http://198.18.1.1/")
	late := 0
	s.must(s.client.Do(func() error {
		for i := range conns {
			wasLate, err := lateGet()
			if err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
			if wasLate {
				late++
			}
		}
		return nil
	}))
	sum := s.stop()
	if r := sum.Gateway.SNAT[0].Reclaimed; late > conns/100 || r.Resting+r.Closed < conns-100 || r.HalfOpen > 0 {
		t.Errorf("%d of %d connections were late; reclaimed %+v", late, conns, r)
	}
}

// retransmitted reports whether a connection of the kernel has sent a segment, or its SYN, again.
func retransmitted(c net.Conn) (again bool, err error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false, err
	}
	return again, errors.Join(raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO); err == nil {
			again = info.Total_retrans > 0
		}
	}), err)
}

// lateGet has the server at 198.18.1.1 answer on a connection of its own, and reports whether the SYN was sent again.
func lateGet() (late bool, err error) {
	c, err := net.DialTimeout("tcp", "198.18.1.1:80", 20*time.Second)
	if err != nil {
		return false, err
	}
	defer c.Close()
	if late, err = retransmitted(c); err != nil {
		return false, err
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
	if b, err := io.ReadAll(c); err != nil || len(b) == 0 {
		return late, fmt.Errorf("%q, %w", b, err)
	}
	return late, nil
}
