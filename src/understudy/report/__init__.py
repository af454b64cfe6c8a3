"""The report: one HTML file that says what was promised, what came of it, and how good it is."""

from understudy.report.page import ReportPaths, write_reports

__all__ = ["ReportPaths", "write_reports"]
