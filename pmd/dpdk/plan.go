package dpdk

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// Sizes in bytes.
const (
	etherHeader = 14
	headroom    = 128 // of DPDK, in front of a received packet (RTE_PKTMBUF_HEADROOM)
	tags        = 8   // two VLAN tags
)

// Offloads of DPDK, as rte_ethdev.h numbers them. The numbers are part of the ABI.
const (
	rxChecksumIP  = 1 << 1
	rxChecksumUDP = 1 << 2
	rxChecksumTCP = 1 << 3
	rxChecksums   = rxChecksumIP | rxChecksumUDP | rxChecksumTCP
	rxScatter     = 1 << 13
	txChecksumIP  = 1 << 1
	txChecksumUDP = 1 << 2
	txChecksumTCP = 1 << 3
	txTSO         = 1 << 5
	txMultiSegs   = 1 << 15
	mostDepth     = 256 // frames that wait for the next packets of a queue: a batch
	defaultKey    = 40  // bytes of an RSS key, of drivers that do not say
	symmetricByte = 2   // period of the symmetric RSS key
)

// symmetricKey is the RSS key under which both directions of a flow have one hash: it repeats every 16 bits, so that
// exchanging addresses and ports, which are multiples of 16 bits, changes nothing (Woo and Park, "Scalable TCP Session
// Monitoring with Symmetric Receive-side Scaling", 2012).
func symmetricKey(size int) (key [64]byte) {
	for i := range min(size, len(key)) {
		key[i] = [symmetricByte]byte{0x6d, 0x5a}[i%symmetricByte]
	}
	return key
}

// RSS types of DPDK (RTE_ETH_RSS_*): addresses, and ports where there are some.
const flowTypes = 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<10 | 1<<11 // IPv4, fragments, TCP, UDP; the same of IPv6

// inside reports whether the mbufs lie in the frames. DPDK's AF_XDP driver computes the one from the other.
func (d *Device) inside() bool { return d.driver == "net_af_xdp" }

// onInterface reports whether the device is an interface that the kernel has without DPDK.
func (d *Device) onInterface() bool {
	return d.link.fd >= 0 && (d.driver == "net_af_packet" || d.driver == "net_af_xdp")
}

// chains reports whether the device sends and receives packets of several frames.
func (d *Device) chains() bool { return d.info.txOffloads&txMultiSegs != 0 && !d.inside() }

// With DPDK's AF_XDP driver the mempool's header and the mbuf (192 bytes), DPDK's headroom (128) and that of XDP (256) lie
// in front of a packet, and a frame is a page at most.
const (
	xdpFrame  = 4096
	xdpBefore = 576
)

// tapRing counts the frames that DPDK's TAP driver reads a packet into; it takes them at once.
const tapRing = 64

// xdpRing counts the frames that DPDK's AF_XDP driver puts into its fill ring; it knows no other number.
const xdpRing = 2048

// ringFrames returns how many frames the device takes when it starts.
func (d *Device) ringFrames(s *setup) int {
	switch d.driver {
	case "net_null", "net_ring", "net_pcap", "net_memif", "net_af_packet", "net_vhost":
		return 0 // they take a frame when a packet is there
	case "net_af_xdp":
		return xdpRing
	}
	return int(s.rxDesc)
}

// plan checks what is asked of the device and returns how it is set up.
func (d *Device) plan(cfg *Config) (*setup, error) {
	n := len(cfg.Pools)
	if most := int(min(d.info.maxRxQueues, d.info.maxTxQueues)); n > most {
		return nil, fmt.Errorf("%w: %d queues, and the device has %d", ErrArguments, n, most)
	}
	s := &setup{port: d.port, queues: uint32(n), rssTypes: d.info.rssTypes & flowTypes, keySize: min(cmp.Or(d.info.keySize, defaultKey), 64)}
	s.key = symmetricKey(int(s.keySize))
	s.rxDesc = clamp(cmp.Or(cfg.Ring, DefaultRing), d.info.minRxDesc, d.info.maxRxDesc)
	s.txDesc = clamp(txRing, d.info.minTxDesc, d.info.maxTxDesc)
	switch d.driver {
	case "net_tap":
		s.rxDesc = tapRing
	case "net_af_xdp":
		s.rxDesc, s.txDesc = xdpRing, xdpRing
	}
	s.promiscuous, s.multicast = uint32(flag(cfg.Promiscuous)), uint32(flag(cfg.Multicast))
	if d.onInterface() { // kernelLink.receiveAlso
		s.promiscuous, s.multicast = 0, 0
	}
	return s, d.planMTU(cfg, s)
}

func clamp(n int, least, most uint32) uint32 {
	if most == 0 {
		most = 1 << 15
	}
	return max(least, min(uint32(n), most))
}

// planMTU chooses the MTU: that of the configuration, or of the kernel's interface, or of the device.
func (d *Device) planMTU(cfg *Config, s *setup) error {
	if mtu := d.link.mtu(); mtu > 0 {
		d.mtu = mtu
	}
	if cfg.MTU > 0 && cfg.MTU != d.mtu {
		if most := d.mostMTU(); cfg.MTU > most || cfg.MTU < int(d.info.minMTU) {
			return fmt.Errorf("%w: MTU %d, and the device takes %d to %d", ErrArguments, cfg.MTU, d.info.minMTU, most)
		}
		d.mtu = cfg.MTU
		s.mtu = uint32(cfg.MTU)
	}
	s.txOffloads |= d.txOffloads()
	s.rxOffloads |= d.info.rxOffloads&rxChecksums | cfg.rxOffloads
	if d.chains() {
		s.txOffloads |= txMultiSegs
		s.rxOffloads |= d.info.rxOffloads & rxScatter
	}
	frame := cfg.Pools[0].Arena().FrameSize()
	room := frame - headroom
	if d.inside() {
		if frame > xdpFrame {
			return fmt.Errorf("%w: frames of %d bytes, and XDP takes %d at most", ErrFrames, frame, xdpFrame)
		}
		room = frame - xdpBefore
	}
	if s.rxOffloads&rxScatter == 0 && d.mtu+etherHeader+tags > room {
		return fmt.Errorf("%w: frames of %d bytes hold packets of %d, and the MTU is %d", errFrameSize, frame, room-etherHeader-tags, d.mtu)
	}
	return nil
}

// mostMTU returns the largest MTU of the device. Some drivers limit it by the length of a frame alone.
func (d *Device) mostMTU() int {
	const checksum = 4 // of a frame; DPDK counts it
	most := int(d.info.maxFrame) - etherHeader - checksum
	if d.info.maxMTU > 0 {
		most = min(most, int(d.info.maxMTU))
	}
	return most
}

// errFrameSize is an ErrFrames whose remedy is larger ones.
var errFrameSize = fmt.Errorf("%w of this size", ErrFrames)

func remedyOf(err error) string {
	if errors.Is(err, errFrameSize) {
		return "frames of 4096 bytes, or a smaller MTU"
	}
	return ""
}

// describe renders what is in use, for people.
func (d *Device) describe(cfg *Config, s *setup) string {
	words := []string{"DPDK " + strings.TrimPrefix(d.shim.version, "DPDK "), d.driver}
	if s.queues > 1 && s.rssTypes != 0 {
		words = append(words, "RSS", "symmetric key")
	}
	if d.inside() {
		words = append(words, "mbufs in frames")
	}
	words = append(words, offloadNames(s)...)
	if cfg.Promiscuous {
		words = append(words, "promiscuous")
	}
	return strings.Join(words, ", ")
}

// pointer converts an address of C memory, which the garbage collector neither moves nor frees.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
