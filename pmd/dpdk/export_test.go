package dpdk

// WithTSO returns cfg for a device that cuts large packets and does not say so: DPDK's net_vhost passes them to a guest whole.
func WithTSO(cfg Config) Config {
	cfg.txOffloads = txTSO
	return cfg
}

// WithStrippedTags returns cfg for a device that takes VLAN tags out of received packets.
func WithStrippedTags(cfg Config) Config {
	cfg.rxOffloads = 1 // RTE_ETH_RX_OFFLOAD_VLAN_STRIP
	return cfg
}

// WithoutRSS returns cfg for a device whose rules name a queue each, because it spreads nothing.
func WithoutRSS(cfg Config) Config {
	cfg.noRSS = true
	return cfg
}

// Port returns DPDK's number of the device.
func (d *Device) Port() uint32 { return d.port }
