#include "vqp/data/wc_kind.h"

enum wc_kind wc_kind_of(enum ibv_wc_status status, bool port_up)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return WC_OK;
	case IBV_WC_WR_FLUSH_ERR:
		return WC_FLUSH;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
	case IBV_WC_GENERAL_ERR:
	case IBV_WC_FATAL_ERR:
	case IBV_WC_BAD_RESP_ERR:
	case IBV_WC_LOC_EEC_OP_ERR:
	case IBV_WC_INV_EECN_ERR:
	case IBV_WC_INV_EEC_STATE_ERR:
		return WC_PATH;
	case IBV_WC_LOC_QP_OP_ERR: /* some devices say this of a wr that was posted while the port was down */
		return port_up ? WC_PROGRAM : WC_PATH;
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_MW_BIND_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_LOC_RDD_VIOL_ERR:
	case IBV_WC_REM_INV_RD_REQ_ERR:
	case IBV_WC_REM_ABORT_ERR:
	case IBV_WC_TM_ERR:
	case IBV_WC_TM_RNDV_INCOMPLETE:
		return WC_PROGRAM;
	}
	return WC_PATH; /* what the headers do not know is no fault of the program's */
}

bool wc_kind_is_refusal(enum ibv_wc_status status)
{
	return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_OP_ERR ||
	       status == IBV_WC_RNR_RETRY_EXC_ERR;
}
