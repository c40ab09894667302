package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// MaxComponents is the number of programs that a dispatcher calls.
const MaxComponents = 10

// DefaultPriority orders a component that names none, as libxdp's does.
const DefaultPriority = 50

const (
	magic          = 236 // 'X' + 'D' + 'P'
	version        = 2
	dispatcherName = "xdp_dispatcher"
	configSize     = 4 + 3*4*MaxComponents
	hasFrags       = 1 << 5 // BPF_F_XDP_HAS_FRAGS
)

// Actions is a bitmap of XDP actions: bit n is the action n of enum xdp_action.
type Actions uint32

// The actions. Continue is the result of a function that no component replaces, and in every bitmap of a dispatcher.
const (
	Aborted Actions = 1 << iota
	Drop
	Pass
	Tx
	Redirect
	Continue Actions = 1 << 31
)

// DefaultActions continue the chain where a component names none.
const DefaultActions = Pass

var actionNames = []string{"XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"}

// String returns the actions by name, separated by commas, without Continue.
func (a Actions) String() string { return strings.Join(a.Names(), ",") }

// Names returns the names of the actions, as XDP_PASS. Continue is left out, and actions that have no name are numbers.
func (a Actions) Names() []string {
	names := []string{}
	for i := range 31 {
		switch {
		case a>>i&1 == 0:
		case i < len(actionNames):
			names = append(names, actionNames[i])
		default:
			names = append(names, fmt.Sprint(i))
		}
	}
	return names
}

// ParseAction returns the action of a name such as XDP_PASS or pass.
func ParseAction(name string) (Actions, error) {
	want := "XDP_" + strings.TrimPrefix(strings.ToUpper(name), "XDP_")
	for i, have := range actionNames {
		if have == want {
			return 1 << i, nil
		}
	}
	return 0, fmt.Errorf("no XDP action %q: aborted, drop, pass, tx or redirect", name)
}

// ErrVersion reports that the dispatcher on an interface speaks another version of the protocol than 2.
var ErrVersion = errors.New("another version of the dispatcher protocol")

// config is struct config of bpf/dispatcher.c.
type config struct {
	count   int
	frags   bool
	actions [MaxComponents]Actions
	prios   [MaxComponents]uint32
	flags   [MaxComponents]uint32
}

// bytes returns the configuration in the layout of the protocol:
//
//	0 magic, 1 version, 2 num_progs, 3 is_frags, 4 actions[10], 44 prios[10], 84 flags[10]
func (c *config) bytes() []byte {
	b := []byte{magic, version, byte(c.count), 0}
	if c.frags {
		b[3] = 1
	}
	for _, a := range c.actions {
		b = binary.NativeEndian.AppendUint32(b, uint32(a))
	}
	for _, list := range [][MaxComponents]uint32{c.prios, c.flags} {
		for _, v := range list {
			b = binary.NativeEndian.AppendUint32(b, v)
		}
	}
	return b
}

// parseConfig reads the configuration of a dispatcher. Version 3, of xdp-tools 1.5, is longer: a loader that knows only
// version 2 must leave it alone, and so must one that knows 3 leave a dispatcher of 2 at 2.
func parseConfig(b []byte) (c config, err error) {
	if len(b) < 3 || b[0] != magic {
		return c, errors.New("the configuration of the dispatcher has no magic byte")
	}
	if b[1] != version {
		return c, fmt.Errorf("%w: %d, and 2 is supported", ErrVersion, b[1])
	}
	if len(b) != configSize || b[2] > MaxComponents {
		return c, fmt.Errorf("the configuration of the dispatcher has %d bytes and %d programs", len(b), b[2])
	}
	c.count, c.frags = int(b[2]), b[3] != 0
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(b[4+4*i:]) }
	for i := range MaxComponents {
		c.actions[i], c.prios[i], c.flags[i] = Actions(word(i)), word(MaxComponents+i), word(2*MaxComponents+i)
	}
	return c, nil
}
