package afpacket_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// Packets come and go on an interface that is renamed, up or down meanwhile, also where another one takes its name.
func TestARenamedInterfaceServesOn(t *testing.T) {
	r := newRig(t, 1, 512, nil)
	r.know(t)
	c := dial(t, r.linux, "", "198.18.0.2:9")
	arrives := func(when string) {
		t.Helper()
		text := []byte("datagram " + when)
		_, err := c.Write(text)
		must(t, err)
		r.collect(t, func(got [][]byte) bool {
			return slices.ContainsFunc(got, func(p []byte) bool { return bytes.Contains(p, text) })
		})
	}
	idle := func() { // the queue looks at its link
		t.Helper()
		b := packet.NewBatch(r.arena.View(), 64)
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			n, err := r.dev.Queues[0].Rx(now(), b)
			r.pools[0].PutBatch(b)
			if errors.Is(err, pmd.ErrDown) {
				return
			}
			must(t, err)
			if n == 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the queue is never idle")
			}
		}
	}
	run := func(args ...string) {
		t.Helper()
		out, err := r.here.Run("ip", args...)
		if err != nil {
			t.Fatal(out, err)
		}
		time.Sleep(2 * linkCheck)
		idle()
	}
	arrives("before")
	run("link", "set", "mr0", "name", "other0")
	arrives("renamed")
	must(t, r.net.Link(r.net.Namespace("third"), "eth0", r.here, "mr0"))
	arrives("beside one of its name")
	run("link", "del", "mr0")
	run("link", "set", "other0", "down")
	run("link", "set", "other0", "name", "mr0")
	run("link", "set", "mr0", "up")
	arrives("renamed back")
	r.send(t, r.udp(1, 2, []byte("sent")))
}

// linkCheck is longer than a queue waits between two looks at its interface.
const linkCheck = 11 * time.Millisecond
