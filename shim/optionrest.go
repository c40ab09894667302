package shim

import (
	"syscall"

	"github.com/millrace/millrace/socket"
)

// invalid is setsockopt(2) of an option that the kind of socket only reads.
func invalid(*sock, optionName, []byte) error { return syscall.EINVAL }

// empty is getsockopt(2) of an option that has no bytes.
func empty(_ *sock, _ optionName, b []byte) ([]byte, error) { return b, nil }

// setAdvice is SO_CNX_ADVICE: 1 makes Linux forget what it has learnt of the path. The stack keeps little, and finds out itself.
func setAdvice(_ *sock, n optionName, v []byte) error {
	if i, err := intOf(n, v); err != nil || i != 1 {
		return syscall.EINVAL
	}
	return nil
}

// setLockFilter is SO_LOCK_FILTER, which cannot be taken back. There are no filters to be locked.
func setLockFilter(k *sock, n optionName, v []byte) error {
	i, err := intOf(n, v)
	if err == nil && i == 0 && k.options.kept[n] != 0 {
		return syscall.EPERM
	}
	return keptFlag(0).set(k, n, v)
}

// setNoOptions is IP_OPTIONS: the stack sends none.
func setNoOptions(_ *sock, _ optionName, v []byte) error {
	if len(v) > 0 {
		return syscall.ENOPROTOOPT
	}
	return nil
}

func setThinDupAck(_ *sock, n optionName, v []byte) error {
	if i, err := intOf(n, v); err != nil || i < 0 || i > 1 {
		return syscall.EINVAL
	}
	return nil
}

// fastOpen is TCP_FASTOPEN: the length of the queue of a listener, of which the stack looks at 0 alone.
var fastOpen = optionSpec{
	set: func(k *sock, n optionName, v []byte) error {
		i, err := intOf(n, v)
		if err != nil {
			return err
		}
		if i < 0 {
			return syscall.EINVAL
		}
		if err := k.setTCP(socket.OptFastOpen, i); err != nil {
			return err
		}
		return kept(0, minInt32, maxInt32).set(k, n, v)
	},
	get: kept(0, minInt32, maxInt32).get,
}

// pacing is SO_MAX_PACING_RATE, of 8 bytes for those who have space for them.
var pacing = optionSpec{
	set: tcpInt(socket.OptMaxPacing).set,
	get: func(k *sock, _ optionName, b []byte) ([]byte, error) {
		v, err := k.getTCP(socket.OptMaxPacing)
		return order.AppendUint64(b, uint64(int64(v))), err
	},
}

// retransmissions returns the seconds of TCP_DEFER_ACCEPT as Linux has them: those of so many SYN-ACKs, of which the first waits for 1 s, and
// none for more than 120.
func retransmissions(seconds int) int {
	total := 0
	for wait := 1; total < seconds; wait = min(2*wait, 120) {
		total += wait
	}
	return total
}

// deviceByIndex returns the name of a device of the stack; "" is that of 0.
func (k *sock) deviceByIndex(index uint32) (string, error) {
	for _, n := range k.s.interfaces() {
		if index != 0 && n.index == index && index != loopbackIndex {
			return n.name, nil
		}
	}
	if index != 0 {
		return "", syscall.ENODEV
	}
	return "", nil
}

// byIndex is an option with a device's index in the place of its name.
func byIndex(set func(k *sock, n optionName, v []byte) error) func(k *sock, n optionName, v []byte) error {
	return func(k *sock, n optionName, v []byte) error {
		i, err := intOf(n, v)
		if err != nil {
			return err
		}
		if i < 0 {
			return syscall.EINVAL
		}
		name, err := k.deviceByIndex(uint32(i))
		if err != nil {
			return err
		}
		return set(k, n, []byte(name))
	}
}

func getIndex(k *sock, _ optionName, b []byte) ([]byte, error) {
	of := k.options.device
	if !k.stream {
		of = k.options.udp.Interface
	}
	return appendInt(b, int(programIndex(of))), nil
}

// setUnicastIf is IP_UNICAST_IF and IPV6_UNICAST_IF, an index in network order: the device that unicast leaves by. The only one of the stack
// is that in any case.
func setUnicastIf(one func(k *sock, n optionName, v []byte) error) func(k *sock, n optionName, v []byte) error {
	return func(k *sock, n optionName, v []byte) error {
		if len(v) != 4 {
			return syscall.EINVAL
		}
		index := uint32(v[0])<<24 | uint32(v[1])<<16 | uint32(v[2])<<8 | uint32(v[3])
		name, err := k.deviceByIndex(index)
		if err != nil {
			return syscall.EADDRNOTAVAIL
		}
		was := k.options.device
		err = one(k, n, []byte(name))
		k.options.device = was // it receives from all
		if err != nil {
			return err
		}
		return kept(0, minInt32, maxInt32).set(k, n, v)
	}
}

func getUnicastIf(k *sock, n optionName, b []byte) ([]byte, error) {
	return kept(0, minInt32, maxInt32).get(k, n, b)
}

// allGroups is IP_MULTICAST_ALL and IPV6_MULTICAST_ALL, 0 or 1.
func allGroups(f func(o *socket.UDPOptions) *bool) optionSpec {
	spec := udpBool(f)
	set := spec.set
	spec.set = func(k *sock, n optionName, v []byte) error {
		if i, err := intOf(n, v); err != nil || i < 0 || i > 1 {
			return syscall.EINVAL
		}
		return set(k, n, v)
	}
	return spec
}
