#include "life.h"
const struct part boxes[] = {{NULL, NULL}};
