// What both vector forms of the filter multiply by: tables.go and pairs.go.
DATA lower<>+0(SB)/4, $0x20202020
GLOBL lower<>(SB), RODATA|NOPTR, $4
DATA mul4<>+0(SB)/4, $0x9e3b24c5
GLOBL mul4<>(SB), RODATA|NOPTR, $4
DATA mul8<>+0(SB)/4, $0x85ebca6b
GLOBL mul8<>(SB), RODATA|NOPTR, $4
DATA mulWord8<>+0(SB)/4, $0xeb352d00 // mulWord << 8
GLOBL mulWord8<>(SB), RODATA|NOPTR, $4
DATA mulOdd<>+0(SB)/4, $0x846ca68b
GLOBL mulOdd<>(SB), RODATA|NOPTR, $4
