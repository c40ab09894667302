package gpukern_test

import (
	"testing"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
)

// TestDeviceVerdictIsTaken passes packets whose checksums a device has verified: they are not summed again, so that even a wrong
// one counts as right. One that went through the pass before is summed.
func TestDeviceVerdictIsTaken(t *testing.T) {
	const wrong = `0200 0000 0002 0200 0000 0001 0800
		4500 0028 0000 0000 4006 0000 c000 0201 c000 0202
		1000 0050 0000 0001 0000 0002 5010 0100 dead 0000`
	const noSum = dnsQuery
	for _, c := range []struct {
		name, hex string
		set       func(d *packet.Desc)
		want      packet.Flags
	}{
		{"verified", wrong, func(d *packet.Desc) { d.Flags = packet.FlagL4ChecksumOK }, packet.FlagL4ChecksumOK},
		{"not verified", wrong, func(*packet.Desc) {}, 0},
		{"rewritten since", wrong, func(d *packet.Desc) { d.Flags, d.L4 = packet.FlagL4ChecksumOK, 34 }, 0},
		{"rewritten since, protocol known", wrong, func(d *packet.Desc) { d.Flags, d.Proto = packet.FlagL4ChecksumOK, 6 }, 0},
		{"no checksum of UDP", noSum, func(d *packet.Desc) { d.Flags = packet.FlagL4ChecksumOK }, packet.FlagL4NoChecksum},
	} {
		b := kernref.BatchOf(kernref.One(fromHex(t, c.hex)))
		c.set(&b.D[0])
		if err := NewCPU(Config{}).Submit(b); err != nil {
			t.Fatal(err)
		}
		if got := b.D[0].Flags & (packet.FlagL4ChecksumOK | packet.FlagL4NoChecksum); got != c.want {
			t.Errorf("%s: flags %b, want %b", c.name, got, c.want)
		}
	}
}
