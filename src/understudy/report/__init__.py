"""The report: one HTML file with the guarantee, the results of the run, and their quality."""

from understudy.report.reports import ReportPaths, write_reports

__all__ = ["ReportPaths", "write_reports"]
