package gpukern_test

import (
	"slices"
	"testing"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// load gives the kernel other tables, of a generation.
func (k *headersKernel) load(tables Tables, generation uint32) {
	k.image = tables.Image(new([40]byte))
	k.tables, k.generation = hostkern.Place(k.image), generation
}

// withFlows gives the kernel a flow table.
func (k *headersKernel) withFlows(t testing.TB) *headersKernel {
	k.flows = newFlows(t, flow.Config{Flows: 4096, Seed: 1})
	k.state = State(k.flows)
	k.structOfState = hostkern.Place(k.state)
	return k
}

// rules are what two sets of tables say of every packet, and the other way round.
var (
	rulesOneWay   = kernref.Lists{Rules: []acl.Rule{{DstPorts: acl.PortRange(443, 443)}, {}}}
	rulesOtherWay = kernref.Lists{Rules: []acl.Rule{{SrcPorts: acl.PortRange(443, 443)}, {Proto: 250}, {}}}
)

// TestFlowsRememberWhatTheTablesOfAGenerationSay changes the tables under the kernel: what it says of a packet
// then shows whether it asked them.
func TestFlowsRememberWhatTheTablesOfAGenerationSay(t *testing.T) {
	g := kernref.NewGenerator(17)
	one, other := rulesOneWay, rulesOtherWay
	one.Routes, other.Routes = g.Routes(80), g.Routes(90)
	k := newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte)).withFlows(t)
	const ops = OpACL | OpLPM | OpFlow
	b := g.Batch(300)
	var remembered, asked int
	for _, step := range []struct {
		tables     kernref.Lists
		generation uint32
		memory     kernref.Lists // of the flows
	}{
		{one, 1, one},
		{other, 1, one},
		{other, 2, other},
		{one, 0, one}, // remembers nothing, and does not ask flows
		{one, 2, other},
		{one, 3, one},
	} {
		k.load(compile(t, step.tables), step.generation)
		got, known, unknown := copied(b), copied(b), copied(b)
		k.run(t, got, ops)
		kernref.Reference(known, ops, step.memory)
		kernref.Reference(unknown, ops, step.tables)
		for i, d := range got.D {
			want := unknown.D[i]
			if d.Flow != 0 && !d.Flags.Has(packet.FlagFragment) {
				want = known.D[i]
				remembered++
			} else if d.Flags.Has(packet.FlagFragment) {
				asked++
			}
			if d.Rule != want.Rule || d.NextHop != want.NextHop {
				t.Fatalf("generation %d, packet %d: rule %d, next hop %d; want %d, %d", step.generation, i, d.Rule, d.NextHop, want.Rule, want.NextHop)
			}
		}
	}
	if remembered < 600 || asked < 20 {
		t.Errorf("only %d packets of flows and %d fragments", remembered, asked)
	}
}

// TestFragmentsAndTheirFlowsRememberNothingOfEachOther has a first fragment, whose ports a rule looks at, and a
// packet of which the ports were cut off: both are of the flow of the addresses.
func TestFragmentsAndTheirFlowsRememberNothingOfEachOther(t *testing.T) {
	fragment := fromHex(t, `020000000002 020000000001 0800
		4500 0028 0001 2000 4006 0000 c6120001 c6120002
		c000 01bb 00000001 00000000 5010 ffff 0000 0000`)
	cut := slices.Clone(fragment[:14+20+4])
	wire.IPv4(cut[14:]).SetMoreFragments(false)
	for _, order := range [][][]byte{{fragment, cut, fragment}, {cut, fragment, cut}} {
		k := newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte)).withFlows(t)
		k.load(compile(t, rulesOneWay), 1)
		var flow uint32
		for i, p := range order {
			b := kernref.BatchOf(kernref.One(p))
			k.run(t, b, OpACL|OpFlow)
			want := map[bool]uint16{true: 1, false: 2}[len(p) == len(fragment)]
			if d := b.D[0]; d.Flow == 0 || i > 0 && d.Flow != flow || d.Rule != want {
				t.Errorf("packet %d of %d bytes: flow %d, rule %d", i, len(p), d.Flow, d.Rule)
			}
			flow = b.D[0].Flow
		}
	}
}
