package gpukern

// LPM is a compiled routing table.
type LPM struct{}
