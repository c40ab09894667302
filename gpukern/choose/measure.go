package choose

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// scratchSlots is the number of packets that calibration has in flight at most, each in a frame.
const scratchSlots = inFlight * smallBatch

// calibrations measures both back ends with cfg, once for each set of operations.
func (o *Opener) calibrations(cfg gpukern.Config) ([]gpukern.Calibration, error) {
	if o.measured != nil && o.measuredOps == cfg.Ops {
		return o.measured, nil
	}
	all, err := o.Calibrate(context.Background(), cfg, Plan{Ops: []gpukern.Ops{cfg.Ops}})
	if err != nil {
		return nil, err
	}
	o.measured, o.measuredOps = all, cfg.Ops
	return all, nil
}

// Calibrate measures the CPU and the device, which has to be open, with the tables of cfg and the operations of a
// plan. It uses an arena of its own, because the frames of drivers are in use. Flow tables are not
// touched.
func (o *Opener) Calibrate(ctx context.Context, cfg gpukern.Config, p Plan) (_ []gpukern.Calibration, err error) {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: scratchSlots})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, arena.Close()) }()
	back := func(name string, open func(gpukern.Config) (gpukern.Engine, error)) Backend {
		var used int
		return Backend{
			Name: name,
			Open: func(ops gpukern.Ops) (gpukern.Engine, error) {
				c := cfg
				c.Ops, c.Flows, c.Depth = ops&^stateful, nil, inFlight
				return open(c)
			},
			Batch: func(n, size int) (*packet.Batch, error) {
				b := packet.NewBatch(arena.View(), n)
				for range n {
					b.Append(scratchPacket(arena, used%scratchSlots, size))
					used++
				}
				return b, nil
			},
		}
	}
	cpu := back("cpu", func(c gpukern.Config) (gpukern.Engine, error) { return gpukern.NewCPU(c), nil })
	gpu := back("cuda", func(c gpukern.Config) (gpukern.Engine, error) { return o.openGPU(c, arena) })
	return Calibrate(ctx, cpu, gpu, p)
}

// scratchPacket writes a UDP packet of size bytes, of flow n, into frame n of an arena: headers and
// checksums are right, the payload is text.
func scratchPacket(a *ring.Arena, n, size int) packet.Desc {
	d := packet.Desc{Off: uint32(n << a.Shift), Len: uint16(size)}
	p := a.View().Bytes(&d)
	clear(p[:wire.EthernetLen+wire.IPv4Len])
	wire.Ethernet(p).SetEtherType(wire.EtherTypeIPv4)
	ip := wire.IPv4(p[wire.EthernetLen:])
	ip.SetHeaderLen(wire.IPv4Len)
	ip.SetTotalLen(uint16(len(ip)))
	ip.SetProto(wire.ProtoUDP)
	src, dst := [4]byte{198, 18, byte(n >> 8), byte(n)}, [4]byte{198, 19, byte(n), byte(n >> 8)}
	ip.SetSrc(src)
	ip.SetDst(dst)
	ip.SetChecksum(wire.Fold(wire.Sum(ip[:wire.IPv4Len], 0)))
	udp := p[wire.EthernetLen+wire.IPv4Len:]
	for i := range udp {
		udp[i] = byte('a' + (i*7+n)%26)
	}
	binary.BigEndian.PutUint16(udp, uint16(1024+n))
	binary.BigEndian.PutUint16(udp[2:], 53)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], 0)
	sum := wire.Fold(wire.Sum(udp, wire.PseudoHeader4(src, dst, wire.ProtoUDP, uint32(len(udp)))))
	binary.BigEndian.PutUint16(udp[6:], sum)
	return d
}
