package inspection

import (
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/filter/signature"
)

// Action is the action on the packet of a Verdict.
type Action uint8

// The actions.
const (
	ActionAlert  Action = iota // it passed
	ActionDrop                 // it was dropped, and its flow is blocked
	ActionReject               // the same, and both ends were reset
)

// String returns the name of an action.
func (a Action) String() string { return [...]string{"alert", "drop", "reject"}[a] }

// Verdict is an alert, and what was done.
type Verdict struct {
	Time     clock.Time // of the packet
	Policy   string
	Service  string
	Device   uint8      // that the client's packets arrive on, as in Desc.Port
	Client   netip.Addr // of the flow, whichever side sent the packet: what a drop list takes
	Source   netip.Addr // of the packet that matched, without a tunnel around it
	SrcPort  uint16
	Dest     netip.Addr
	DestPort uint16
	Proto    uint8
	Inner    bool            // it was in a tunnel: Client is the outer address
	Rule     *signature.Rule // nil for an anomaly and an access rule
	Action   Action
}
