package cm

import (
	"bufio"
	"encoding/hex"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestMessagesOfLinux parses messages that Linux sent, and builds each again with the same bytes.
func TestMessagesOfLinux(t *testing.T) {
	f, err := os.Open("testdata/linux.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := map[string]Message{}
	for s := bufio.NewScanner(f); s.Scan(); {
		name, text, ok := strings.Cut(s.Text(), " ")
		if !ok || name == "#" {
			continue
		}
		text += strings.Repeat("0", 2*MADLen-len(text))
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		var m Message
		if why := m.Parse(b); why != Taken || m.Kind.String() != name {
			t.Errorf("%s: %v, %v", name, why, m.Kind)
		}
		if again := hex.EncodeToString(m.Append(nil)); again != text {
			t.Errorf("%s: built again\n%s, want\n%s", name, again, text)
		}
		got[name] = m
	}
	if len(got) != 6 {
		t.Fatalf("%d messages", len(got))
	}
	req := got["REQ"]
	h, _, ok := ParseIPHeader(req.Private)
	if port, _ := ServicePort(SpaceTCP, req.Service); port != 7175 || !ok || h != (IPHeader{Src: addrB, Dst: addrA, SrcPort: 0xea6d}) {
		t.Errorf("%#x, %+v", req.Service, h)
	}
	req.Private, req.Path.FlowLabel = nil, 0
	want := Message{
		Kind: REQ, TID: req.TID, LocalID: req.LocalID, Service: req.Service, CAGUID: 0x000000fffe000002, QPN: 0x1e, PSN: 0x95665d,
		ResponderResources: 1, InitiatorDepth: 1, RemoteTimeout: 20, LocalTimeout: 20, MaxCMRetries: 15, Retries: 7, RNRRetries: 7, PKey: 0xffff, MTU: 3,
		Path: Path{LocalLID: 0xffff, RemoteLID: 0xffff, Local: addrB, Remote: addrA, HopLimit: 64, AckTimeout: 19},
	}
	if !reflect.DeepEqual(req, want) {
		t.Errorf("%+v, want\n%+v", req, want)
	}
	if rej := got["REJ"]; rej.Reason != RejInvalidServiceID || rej.Of != ofREQ {
		t.Errorf("%+v", rej)
	}
}
