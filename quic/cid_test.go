package quic

import (
	"bytes"
	"errors"
	"testing"

	"github.com/millrace/millrace/l4/quiclb"
)

func TestIndexedIDs(t *testing.T) {
	g := IndexedIDs(10, 3, 77).generator()
	if g.ConnectionIDLen() != 10 {
		t.Errorf("length %d", g.ConnectionIDLen())
	}
	seen := map[string]bool{}
	for range 100 {
		id, err := g.GenerateConnectionID()
		if err != nil || id.Len() != 10 || id.Bytes()[3] != 77 {
			t.Fatalf("%v, %v", id, err)
		}
		seen[id.String()] = true
	}
	if len(seen) != 100 {
		t.Errorf("%d different IDs", len(seen))
	}
	for _, offset := range []int{-1, 10} {
		if _, err := IndexedIDs(10, offset, 0).generator().GenerateConnectionID(); !errors.Is(err, ErrConnectionID) {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	if n := (ConnectionIDs{}).generator().ConnectionIDLen(); n != 8 {
		t.Errorf("default length %d", n)
	}
}

// TestSteeredIDs draws IDs of a load balancer, which encrypts the server's ID, until one also belongs
// to a loop.
func TestSteeredIDs(t *testing.T) {
	codec, err := quiclb.New(quiclb.Config{Rotation: 2, ServerID: 3, Nonce: 6, Key: bytes.Repeat([]byte{7}, 16)})
	if err != nil {
		t.Fatal(err)
	}
	server := quiclb.NewServerID([]byte{1, 2, 3})
	mine := func(id []byte) bool { return id[9]%4 == 2 }
	lb := ConnectionIDs{Length: codec.Len(), Fill: func(id []byte) error {
		nonce := make([]byte, 6)
		if err := randomID(nonce); err != nil {
			return err
		}
		_, err := codec.Encode(id[:0], server, nonce)
		return err
	}}
	g := SteeredIDs(lb, mine).generator()
	var scratch quiclb.Scratch
	for range 50 {
		id, err := g.GenerateConnectionID()
		if err != nil || !mine(id.Bytes()) {
			t.Fatalf("%v, %v", id, err)
		}
		if got, ok := codec.Decode(id.Bytes(), &scratch); !ok || got != server {
			t.Fatalf("server %v, %v", got, ok)
		}
	}
	never := SteeredIDs(ConnectionIDs{}, func([]byte) bool { return false }).generator()
	if _, err := never.GenerateConnectionID(); !errors.Is(err, ErrConnectionID) {
		t.Errorf("IDs that nobody owns: %v", err)
	}
	broken := SteeredIDs(ConnectionIDs{Fill: func([]byte) error { return errRefused }}, mine).generator()
	if _, err := broken.GenerateConnectionID(); !errors.Is(err, errRefused) {
		t.Errorf("a source that fails: %v", err)
	}
}
