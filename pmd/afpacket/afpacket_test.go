package afpacket_test

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/millrace/millrace/wire"
)

// echoRequest is an ICMP echo request.
func echoRequest(seq byte) []byte {
	p := append([]byte{8, 0, 0, 0, 0x12, 0x34, 0, seq}, "the quick brown fox"...)
	sum := wire.Fold(wire.Sum(p, 0))
	p[2], p[3] = byte(sum>>8), byte(sum)
	return p
}

// ping sends n echo requests from Linux to the driver's address, each after the answer to the one before.
func (r *rig) ping(n int) error {
	var c net.Conn
	if err := r.linux.Do(func() (err error) {
		c, err = net.Dial("ip4:icmp", ourAddr.String())
		return err
	}); err != nil {
		return err
	}
	defer c.Close()
	for i := range n {
		req := echoRequest(byte(i))
		if _, err := c.Write(req); err != nil {
			return err
		}
		buf := make([]byte, 1500)
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		for {
			n, err := c.Read(buf)
			if err != nil {
				return err
			}
			if n > 20 && buf[20] == 0 && bytes.Equal(buf[24:n], req[4:]) { // behind the IP header
				break
			}
		}
	}
	return nil
}

func TestLinuxPingsTheDriver(t *testing.T) {
	r := newRig(t, 1, 256, nil)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); r.respond(t, stop) }()
	watched := make(chan struct{})
	go func() { // Info is for any goroutine, at any time
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				r.dev.Queues[0].Info()
			}
		}
	}()
	err := r.ping(50)
	close(stop)
	<-watched
	<-done
	if err != nil {
		t.Fatal(err)
	}
	if s := r.dev.Queues[0].Info().Stats; s.RxPackets < 51 || s.TxPackets < 51 {
		t.Errorf("%+v", s)
	}
	r.audit(t)
}
