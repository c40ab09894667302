package lpm

const (
	DirectBits   = directBits
	DirectRoutes = directRoutes
	AskTrie      = askTrie
)
