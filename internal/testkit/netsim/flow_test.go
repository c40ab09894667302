package netsim

import (
	"os"
	"testing"
	"time"
)

func TestAFlowOverAPerfectLinkArrives(t *testing.T) {
	n := New(1)
	a, b := n.Host(HostConfig{}), n.Host(HostConfig{})
	n.Join(a, b, MustProfile("delay=5ms rate=100mbit"))
	m := n.Monitor()
	if testing.Verbose() {
		n.Trace(os.Stderr)
	}
	f := n.Flow(FlowConfig{From: a, To: b, Bytes: 100_000, Back: 3000})
	if !n.RunUntil(time.Minute, f.Done) {
		t.Fatalf("not done: sent %d received %d, %v", f.Client.Sent, f.Server.Received, f.Err())
	}
	if err := f.Err(); err != nil {
		t.Error(err)
	}
	for _, x := range m.Faults {
		t.Error(x)
	}
}
